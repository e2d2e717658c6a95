// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A pod is kept as it is sent, with its labels beside it for selectors.
type pod struct {
	ns, name, uid, version string
	labels                 map[string]string
	body                   []byte
}

type change struct {
	version       int
	before, after *pod // nil: there was none, there is none
}

type store struct {
	mutex   sync.RWMutex
	version int
	pods    map[string]*pod // "namespace/name"
	names   []string        // its keys, sorted
	history []change
	changed chan struct{} // closed by the next change
}

func newStore() *store {
	return &store{version: 1000, pods: map[string]*pod{}, changed: make(chan struct{})}
}

func newUid() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// commit is called with the lock held; after nil is a removal.
func (s *store) commit(key string, before *pod, tree object) *pod {
	s.version++
	var after *pod
	if tree != nil {
		meta := tree["metadata"].(object)
		meta["resourceVersion"] = strconv.Itoa(s.version)
		after = &pod{ns: text(meta, "namespace"), name: text(meta, "name"), uid: text(meta, "uid"), version: strconv.Itoa(s.version),
			labels: map[string]string{}}
		for name, value := range asObject(meta["labels"]) {
			after.labels[name], _ = value.(string)
		}
		after.body, _ = json.Marshal(tree)
		s.pods[key] = after
	} else {
		delete(s.pods, key)
	}
	if before == nil || after == nil {
		at := sort.SearchStrings(s.names, key)
		if before == nil {
			s.names = append(s.names, "")
			copy(s.names[at+1:], s.names[at:])
			s.names[at] = key
		} else {
			s.names = append(s.names[:at], s.names[at+1:]...)
		}
	}
	s.history = append(s.history, change{s.version, before, after})
	close(s.changed)
	s.changed = make(chan struct{})
	return after
}

func asObject(value any) object {
	m, _ := value.(object)
	return m
}

func missing(name string) *refusal {
	return &refusal{404, "NotFound", fmt.Sprintf("pods %q not found", name)}
}

func (s *store) get(ns, name string) ([]byte, *refusal) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	found := s.pods[ns+"/"+name]
	if found == nil {
		return nil, missing(name)
	}
	return found.body, nil
}

func (s *store) create(ns string, tree object) ([]byte, string, *refusal) {
	meta := asObject(tree["metadata"])
	name := text(meta, "name")
	if name == "" {
		return nil, "", &refusal{422, "Invalid", "metadata.name: Required value"}
	}
	uid := newUid()
	meta["namespace"], meta["uid"], meta["creationTimestamp"] = ns, uid, time.Now().UTC().Format(time.RFC3339)
	tree["status"] = object{"phase": "Pending"}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	key := ns + "/" + name
	if s.pods[key] != nil {
		return nil, "", &refusal{409, "AlreadyExists", fmt.Sprintf("pods %q already exists", name)}
	}
	return s.commit(key, nil, tree).body, uid, nil
}

// merge is RFC 7396.
func merge(target, patch object) {
	for key, value := range patch {
		if value == nil {
			delete(target, key)
		} else if inner, ok := value.(object); ok {
			below := asObject(target[key])
			if below == nil {
				below = object{}
			}
			merge(below, inner)
			target[key] = below
		} else {
			target[key] = value
		}
	}
}

// update merges a patch; empty uid or version: not held against.
func (s *store) update(ns, name, uid, version string, patch object) ([]byte, *refusal) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	key := ns + "/" + name
	before := s.pods[key]
	if before == nil {
		return nil, missing(name)
	}
	if version != "" && version != before.version {
		return nil, &refusal{409, "Conflict", fmt.Sprintf("Operation cannot be fulfilled on pods %q: the object has been modified", name)}
	}
	if uid != "" && uid != before.uid {
		return nil, &refusal{422, "Invalid", fmt.Sprintf("metadata.uid: Invalid value: %q: field is immutable", uid)}
	}
	var tree object
	json.Unmarshal(before.body, &tree)
	merge(tree, patch)
	return s.commit(key, before, tree).body, nil
}

func (s *store) remove(ns, name, uid string) ([]byte, string, *refusal) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	key := ns + "/" + name
	before := s.pods[key]
	if before == nil {
		return nil, "", missing(name)
	}
	if uid != "" && uid != before.uid {
		return nil, "", &refusal{409, "Conflict", "Precondition failed: UID in precondition: " + uid + ", UID in object meta: " + before.uid}
	}
	s.commit(key, before, nil)
	return before.body, before.uid, nil
}

type term struct {
	key, value   string
	absent, some bool
}

// terms knows key=value, !key and key.
func terms(selector string) (ret []term) {
	for _, part := range strings.Split(selector, ",") {
		key, value, equal := strings.Cut(part, "=")
		switch {
		case part == "":
		case equal:
			ret = append(ret, term{key: key, value: strings.TrimPrefix(value, "=")})
		case part[0] == '!':
			ret = append(ret, term{key: part[1:], absent: true})
		default:
			ret = append(ret, term{key: part, some: true})
		}
	}
	return ret
}

func fits(p *pod, ns string, selector []term) bool {
	if p == nil || p.ns != ns {
		return false
	}
	for _, t := range selector {
		value, there := p.labels[t.key]
		if t.absent == there || (!t.absent && !t.some && value != t.value) {
			return false
		}
	}
	return true
}

// list gives a page; its continue token is the last name.
func (s *store) list(ns, selector, limit, after string) []byte {
	most, wanted, more := 1<<30, terms(selector), ""
	if n, err := strconv.Atoi(limit); err == nil && n > 0 {
		most = n
	}
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	var items [][]byte
	for _, name := range s.names[sort.SearchStrings(s.names, after+"\x00"):] {
		if !fits(s.pods[name], ns, wanted) {
			continue
		}
		if len(items) == most {
			more = after
			break
		}
		items, after = append(items, s.pods[name].body), name
	}
	head, _ := json.Marshal(object{"resourceVersion": strconv.Itoa(s.version), "continue": more})
	return bytes.Join([][]byte{[]byte(`{"kind":"PodList","apiVersion":"v1","metadata":`), head, []byte(`,"items":[`),
		bytes.Join(items, []byte(",")), []byte("]}")}, nil)
}

// events are the lines after a version, the version to go on at, and what ends the wait for more.
func (s *store) events(version int, ns, selector string) ([]byte, int, chan struct{}) {
	wanted := terms(selector)
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	var out bytes.Buffer
	first := sort.Search(len(s.history), func(i int) bool { return s.history[i].version > version })
	for _, c := range s.history[first:] {
		was, is := fits(c.before, ns, wanted), fits(c.after, ns, wanted)
		kind, shown := "MODIFIED", c.after
		if is && !was {
			kind = "ADDED"
		} else if was && !is {
			kind = "DELETED"
			if c.after == nil {
				shown = c.before
			}
		}
		if was || is {
			fmt.Fprintf(&out, "{\"type\":%q,\"object\":%s}\n", kind, shown.body)
		}
	}
	return out.Bytes(), s.version, s.changed
}
