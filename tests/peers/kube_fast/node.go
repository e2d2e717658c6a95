// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// node makes pods ready and is the executor in each: protocol 1 of docs/executor.md as far as one client that keeps to it can
// tell, without looking at signatures. A command is not run; it ends at once with exit code 0 and "ok" on stdout.
type node struct {
	store   *store
	port    int
	mutex   sync.Mutex
	next    uint32
	running map[string]net.Listener // by uid
}

func newNode(store *store, port int) *node {
	return &node{store: store, port: port, next: 127<<24 | 100<<16, running: map[string]net.Listener{}}
}

func (n *node) listen() (net.Listener, string, error) {
	for tries := 0; ; tries++ {
		n.mutex.Lock()
		n.next++
		var ip [4]byte
		binary.BigEndian.PutUint32(ip[:], n.next)
		n.mutex.Unlock()
		address := net.IP(ip[:]).String()
		listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, n.port))
		if err == nil || tries == 100 {
			return listener, address, err
		}
	}
}

func condition(kind string) object {
	return object{"type": kind, "status": "True"}
}

func (n *node) run(ns, name, uid string) {
	listener, ip, err := n.listen()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube_fast:", err)
		return
	}
	n.mutex.Lock()
	n.running[uid] = listener
	n.mutex.Unlock()
	executor := &executor{uid: uid, instance: strings.ReplaceAll(newUid(), "-", "")}
	go http.Serve(listener, executor)
	started := time.Now().UTC().Format(time.RFC3339)
	_, refused := n.store.update(ns, name, uid, "", object{"spec": object{"nodeName": "node-1"}, "status": object{
		"phase": "Running", "podIP": ip, "startTime": started,
		"conditions":        []any{condition("PodScheduled"), condition("Initialized"), condition("ContainersReady"), condition("Ready")},
		"containerStatuses": []any{object{"name": "executor", "restartCount": 0, "ready": true, "state": object{"running": object{"startedAt": started}}}}}})
	if refused != nil {
		n.stop(uid) // deleted meanwhile
	}
}

func (n *node) stop(uid string) {
	n.mutex.Lock()
	listener := n.running[uid]
	delete(n.running, uid)
	n.mutex.Unlock()
	if listener != nil {
		listener.Close()
	}
}

type executor struct {
	uid, instance string
}

func frame(kind byte, payload string) string {
	return string([]byte{kind, 0, 0, 0}) + string(binary.BigEndian.AppendUint32(nil, uint32(len(payload)))) + payload
}

const done = `{"code":"ok","reason":"","retryable":false,"retry_after_ms":0,"text":"","now_ms":%d%s}`

const ending = `{"kind":"exit","exit_code":0,"signal":0,"survivors":0,"quiescent":"yes","duration_ms":1,"stdout_dropped":0,` +
	`"stderr_dropped":0,"reason":""}`

func (e *executor) health(now int64, pinned bool) string {
	return fmt.Sprintf(`{"protocol":1,"version":"fast","pod_uid":%q,"instance":%q,"boot_id":%q,"root":"/berth/workspace","now_ms":%d,`+
		`"pinned":%t,"ready":true,"reason":"","operations":0}`, e.uid, e.instance, e.instance, now, pinned)
}

// forgotten is what a result says of the commands that the request's first frame names to be forgotten beside its own: all are.
func forgotten(body []byte) string {
	var arguments struct {
		Forget []json.RawMessage `json:"forget"`
	}
	if len(body) < 8 || int(binary.BigEndian.Uint32(body[4:])) > len(body)-8 {
		return ""
	}
	if json.Unmarshal(body[8:8+binary.BigEndian.Uint32(body[4:])], &arguments) != nil {
		return ""
	}
	return fmt.Sprintf(`,"forgotten":%d`, len(arguments.Forget))
}

func (e *executor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked, _ := io.ReadAll(r.Body)
	header, now := w.Header(), time.Now().UnixMilli()
	header.Set("Berth-Executor", "1")
	header.Set("Berth-Pod-Uid", e.uid)
	header.Set("Berth-Instance", e.instance)
	beside := ""
	if r.URL.Path == "/v1/execute" || r.URL.Path == "/v1/forget" {
		beside = forgotten(asked)
	}
	kind, body := "application/vnd.berth.frames", frame('R', fmt.Sprintf(done, now, beside))
	if r.URL.Path == "/v1/health" {
		kind, body = "application/json", e.health(now, false)
	} else {
		token, _, _ := strings.Cut(r.Header.Get("Berth-Token"), ".")
		claims, _ := base64.RawURLEncoding.DecodeString(token)
		lines := strings.Split(string(claims), "\n")
		if len(lines) != 14 {
			http.Error(w, "no token", 401)
			return
		}
		header.Set("Berth-Workspace-Id", lines[3])
		header.Set("Berth-Task-Id", lines[4])
		header.Set("Berth-Nonce", lines[12])
	}
	switch r.URL.Path {
	case "/v1/check":
		kind, body = "application/json", e.health(now, true)
	case "/v1/execute":
		body = frame('S', "{}") + frame('O', "\x00\x00\x00\x00\x00\x00\x00\x00ok\n") + frame('X', ending) + body
	}
	header.Set("Content-Type", kind)
	header.Set("Content-Length", fmt.Sprint(len(body)))
	io.WriteString(w, body)
}
