// SPDX-License-Identifier: Apache-2.0

// kube-apiserver with its etcd in one process, for tests: the real admission, validation, quota, watch and patch machinery of
// Kubernetes on a loopback port, without scheduler, controllers or kubelet (tests/peers/kube_node.py plays those).
//
//	kube-apiserver DIR [flag of kube-apiserver…]
//
// DIR gets everything: etcd's data, keys, certificates, the log and, when the server answers /readyz, "kubeconfig" (a user of the
// group system:masters) and "ready". A second start in the same DIR goes on with the same data and keys. SIGTERM stops both.
package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// How long etcd or the API server may take to answer for the first time; a few seconds on an idle machine.
const startLimit = 3 * time.Minute

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: kube-apiserver DIR [flag…]"))
	}
	dir, err := filepath.Abs(os.Args[1])
	fail(err)
	fail(os.MkdirAll(dir, 0o700))
	_ = os.Remove(filepath.Join(dir, "ready"))

	token, err := readOrMakeToken(filepath.Join(dir, "token"))
	fail(err)
	fail(writeTokens(dir, token))
	fail(makeServiceAccountKey(filepath.Join(dir, "sa.key")))
	etcd, err := startEtcd(dir)
	fail(err)
	port, err := freePort()
	fail(err)
	go announce(dir, port, token)

	command := app.NewAPIServerCommand()
	command.SetArgs(append(flags(dir, port, etcd), os.Args[2:]...))
	os.Exit(cli.Run(command))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube-apiserver:", err)
		os.Exit(1)
	}
}

func flags(dir string, port int, etcd string) []string {
	return []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1",
		// Endpoints may not be loopback; nothing dials this one.
		"--advertise-address=192.0.2.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + filepath.Join(dir, "certs"),
		"--token-auth-file=" + filepath.Join(dir, "tokens.csv"),
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + filepath.Join(dir, "sa.key"),
		"--service-account-key-file=" + filepath.Join(dir, "sa.key"),
		"--service-cluster-ip-range=10.255.0.0/24",
		"--allow-privileged=false",
		"--profiling=false",
		"--event-ttl=10m",
	}
}

func startEtcd(dir string) (string, error) {
	config := embed.NewConfig()
	config.Name = "test"
	config.Dir = filepath.Join(dir, "etcd")
	// A test's cluster dies with its machine: nothing to keep past that.
	config.UnsafeNoFsync = true
	config.LogLevel = "error"
	config.LogOutputs = []string{filepath.Join(dir, "etcd.log")}
	client, err := loopback()
	if err != nil {
		return "", err
	}
	peer, err := loopback()
	if err != nil {
		return "", err
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return "", err
	}
	select {
	case <-server.Server.ReadyNotify():
		return client.String(), nil
	case err := <-server.Err():
		return "", err
	case <-time.After(startLimit):
		return "", errors.New("etcd did not become ready")
	}
}

func loopback() (url.URL, error) {
	port, err := freePort()
	return url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}, err
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func readOrMakeToken(path string) (string, error) {
	if old, err := os.ReadFile(path); err == nil {
		return strings.TrimSpace(string(old)), nil
	}
	bytes := make([]byte, 16)
	if _, err := rand.Read(bytes); err != nil {
		return "", err
	}
	token := hex.EncodeToString(bytes)
	return token, os.WriteFile(path, []byte(token+"\n"), 0o600)
}

// admin may do everything; berth is bound by the roles of packaging/kubernetes, as in a real cluster.
func writeTokens(dir, token string) error {
	lines := token + ",admin,1,\"system:masters\"\n" +
		"berth-" + token + ",system:serviceaccount:berth:berthd,2,\"system:serviceaccounts,system:serviceaccounts:berth\"\n"
	return os.WriteFile(filepath.Join(dir, "tokens.csv"), []byte(lines), 0o600)
}

func makeServiceAccountKey(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}

// Writes the kubeconfigs and "ready" once the server answers; ends the process when it never does.
func announce(dir string, port int, token string) {
	server := fmt.Sprintf("https://127.0.0.1:%d", port)
	// The self-signed certificate is in DIR, but is made while we wait: this one request trusts whoever holds the port.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for end := time.Now().Add(startLimit); !answers(client, server+"/readyz", token); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			fail(errors.New("the API server did not become ready"))
		}
	}
	ca, err := os.ReadFile(filepath.Join(dir, "certs", "apiserver.crt"))
	fail(err)
	fail(os.WriteFile(filepath.Join(dir, "kubeconfig"), kubeconfig(server, ca, token), 0o600))
	fail(os.WriteFile(filepath.Join(dir, "kubeconfig-berth"), kubeconfig(server, ca, "berth-"+token), 0o600))
	fail(os.WriteFile(filepath.Join(dir, "ready"), []byte(server+"\n"), 0o600))
}

func answers(client *http.Client, address, token string) bool {
	request, err := http.NewRequest(http.MethodGet, address, nil)
	fail(err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func kubeconfig(server string, ca []byte, token string) []byte {
	return []byte(`apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: ` + server + `
    certificate-authority-data: ` + base64.StdEncoding.EncodeToString(ca) + `
users:
- name: test
  user:
    token: ` + token + `
contexts:
- name: test
  context:
    cluster: test
    user: test
    namespace: berth
current-context: test
`)
}
