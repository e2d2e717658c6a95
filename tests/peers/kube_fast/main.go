// SPDX-License-Identifier: Apache-2.0

// The path of a claim, served fast enough that a bench measures the client: the part of an API server that mode pods of the
// Kubernetes provider uses, a node that makes every pod ready at once, and executors that answer commands without running any.
// What it keeps of the API's rules is held against tests/peers/kube_rules.py, as are the other fake and the real server.
// GET /counts tells how many requests came. Prints one line and serves until its standard input ends.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

type object = map[string]any

// at follows keys, NULL-safe.
func at(from any, keys ...string) any {
	for _, key := range keys {
		m, ok := from.(object)
		if !ok {
			return nil
		}
		from = m[key]
	}
	return from
}

func text(from any, keys ...string) string {
	s, _ := at(from, keys...).(string)
	return s
}

type refusal struct {
	code            int
	reason, message string
}

func (r *refusal) body() []byte {
	b, _ := json.Marshal(object{"kind": "Status", "apiVersion": "v1", "metadata": object{}, "status": "Failure", "code": r.code,
		"reason": r.reason, "message": r.message})
	return b
}

// counts are by what a request asks for.
type counts struct {
	sync.Mutex
	total int
	by    map[string]int
}

func (c *counts) add(words ...string) {
	c.Lock()
	c.total++
	c.by[strings.Join(words, " ")]++
	c.Unlock()
}

type server struct {
	store  *store
	node   *node
	counts counts
}

func answer(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(code)
	w.Write(body)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/counts" {
		s.counts.Lock()
		body, _ := json.Marshal(object{"total": s.counts.total, "by": s.counts.by})
		s.counts.Unlock()
		answer(w, 200, body)
		return
	}
	code, body, refused := s.route(w, r)
	if refused != nil {
		code, body = refused.code, refused.body()
	}
	if code != 0 {
		answer(w, code, body)
	}
}

func (s *server) route(w http.ResponseWriter, r *http.Request) (int, []byte, *refusal) {
	// "", api, v1, namespaces, NS, pods[, NAME]
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) < 6 || len(parts) > 7 || parts[1] != "api" || parts[3] != "namespaces" || parts[5] != "pods" {
		s.counts.add(r.Method, "other")
		return 0, nil, &refusal{404, "NotFound", "the server could not find the requested resource"}
	}
	if len(parts) == 6 {
		return s.collection(w, r, parts[4])
	}
	s.counts.add(r.Method, "pod", parts[6])
	switch r.Method {
	case "GET":
		body, refused := s.store.get(parts[4], parts[6])
		return 200, body, refused
	case "PATCH":
		return s.patch(r, parts[4], parts[6])
	case "DELETE":
		return s.delete(r, parts[4], parts[6])
	}
	return 0, nil, &refusal{405, "MethodNotAllowed", "the server does not allow this method on the requested resource"}
}

func (s *server) collection(w http.ResponseWriter, r *http.Request, ns string) (int, []byte, *refusal) {
	query := r.URL.Query()
	selector := query.Get("labelSelector")
	switch {
	case r.Method == "POST":
		s.counts.add("POST", "pods")
		return s.create(r, ns)
	case r.Method == "GET" && query.Get("watch") != "":
		s.counts.add("WATCH", "pods")
		s.watch(w, r, ns, selector)
		return 0, nil, nil
	case r.Method == "GET" && strings.Contains(selector, "berth.dev/task="):
		s.counts.add("LIST", "task")
	case r.Method == "GET":
		s.counts.add("LIST", "pods")
	default:
		return 0, nil, &refusal{405, "MethodNotAllowed", "the server does not allow this method on the requested resource"}
	}
	return 200, s.store.list(ns, selector, query.Get("limit"), query.Get("continue")), nil
}

func decode(r *http.Request) (object, *refusal) {
	var body object
	data, err := io.ReadAll(r.Body)
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &body)
	}
	if err != nil {
		return nil, &refusal{400, "BadRequest", err.Error()}
	}
	return body, nil
}

func (s *server) create(r *http.Request, ns string) (int, []byte, *refusal) {
	pod, refused := decode(r)
	if refused != nil {
		return 0, nil, refused
	}
	if r.URL.Query().Get("dryRun") != "" {
		asObject(pod["metadata"])["uid"] = newUid()
		body, _ := json.Marshal(pod)
		return 201, body, nil
	}
	body, uid, refused := s.store.create(ns, pod)
	if refused == nil {
		go s.node.run(ns, text(pod, "metadata", "name"), uid)
	}
	return 201, body, refused
}

func (s *server) patch(r *http.Request, ns, name string) (int, []byte, *refusal) {
	if r.Header.Get("Content-Type") != "application/merge-patch+json" {
		return 0, nil, &refusal{415, "UnsupportedMediaType", "the body of the request was in an unknown format"}
	}
	patch, refused := decode(r)
	if refused != nil {
		return 0, nil, refused
	}
	body, refused := s.store.update(ns, name, text(patch, "metadata", "uid"), text(patch, "metadata", "resourceVersion"), patch)
	return 200, body, refused
}

func (s *server) delete(r *http.Request, ns, name string) (int, []byte, *refusal) {
	options, refused := decode(r)
	if refused != nil {
		return 0, nil, refused
	}
	body, uid, refused := s.store.remove(ns, name, text(options, "preconditions", "uid"))
	if refused == nil {
		s.node.stop(uid)
	}
	return 200, body, refused
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, ns, selector string) {
	version := 0
	fmt.Sscan(r.URL.Query().Get("resourceVersion"), &version)
	seconds := 300
	fmt.Sscan(r.URL.Query().Get("timeoutSeconds"), &seconds)
	end := time.After(time.Duration(seconds) * time.Second)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	for {
		lines, next, changed := s.store.events(version, ns, selector)
		version = next
		if len(lines) > 0 {
			w.Write(lines)
			w.(http.Flusher).Flush()
		}
		select {
		case <-end:
			return
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

func main() {
	port := flag.Int("port", 0, "of the API server, on 127.0.0.1")
	pods := flag.Int("executor-port", 18080, "of every pod, each on an address of 127/8")
	flag.Parse()
	store := newStore()
	s := &server{store: store, node: newNode(store, *pods), counts: counts{by: map[string]int{}}}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube_fast:", err)
		os.Exit(1)
	}
	fmt.Printf("serves http://%s\n", listener.Addr())
	go http.Serve(listener, s)
	io.Copy(io.Discard, os.Stdin)
}
