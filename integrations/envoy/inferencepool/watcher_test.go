package inferencepool

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"

	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/internal/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// object makes an object with these labels; rest is all but its metadata.
func object(of schema.GroupVersionResource, kind, name string, labels map[string]string, rest map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: rest}
	u.SetAPIVersion(of.GroupVersion().String())
	u.SetKind(kind)
	u.SetNamespace("models")
	u.SetName(name)
	u.SetLabels(labels)
	return u
}

func poolObject(name, app string, ports ...int64) *unstructured.Unstructured {
	all := []any{}
	for _, p := range ports {
		all = append(all, map[string]any{"number": p})
	}
	return object(pools, "InferencePool", name, nil, map[string]any{"spec": map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"app": app}}, "targetPorts": all,
	}})
}

func podObject(name, app, ip, phase string) *unstructured.Unstructured {
	return object(pods, "Pod", name, map[string]string{"app": app}, map[string]any{"status": map[string]any{"podIP": ip, "phase": phase}})
}

func objectiveObject(name, pool string, priority int64) *unstructured.Unstructured {
	return object(objectives, "InferenceObjective", name, nil, map[string]any{"spec": map[string]any{"priority": priority, "poolRef": map[string]any{"name": pool}}})
}

func sliceObject(name, service, addressType string, port int64, endpoints ...any) *unstructured.Unstructured {
	return object(slicesOf, "EndpointSlice", name, map[string]string{serviceLabel: service}, map[string]any{
		"addressType": addressType, "ports": []any{map[string]any{"port": port}}, "endpoints": endpoints,
	})
}

func endpoint(pod, addr string, terminating bool) any {
	return map[string]any{"addresses": []any{addr}, "conditions": map[string]any{"terminating": terminating}, "targetRef": map[string]any{"name": pod}}
}

// stand is a Watcher of a cluster that a test plays.
type stand struct {
	*Watcher
	t      *testing.T
	client dynamic.Interface

	mu     sync.Mutex
	lists  [][]string
	refuse error
}

func start(t *testing.T, cfg Config, objs ...runtime.Object) *stand {
	t.Helper()
	s := &stand{t: t}
	s.client = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		pools: "InferencePoolList", pods: "PodList", slicesOf: "EndpointSliceList", objectives: "InferenceObjectiveList",
	}, objs...)
	cfg.Client, cfg.Namespace = s.client, "models"
	cfg.Apply = func(all []gateway.WorkerConfig) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		urls := []string{}
		for _, w := range all {
			urls = append(urls, strings.TrimPrefix(w.URL, "http://"))
		}
		s.lists = append(s.lists, urls)
		return s.refuse
	}
	var err error
	if s.Watcher, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// until polls for a condition that becomes true soon or never.
func (s *stand) until(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		is := ok()
		s.mu.Unlock()
		if is {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s: the lists are %v", what, s.lists)
		}
	}
}

// applies waits until the last list is this one.
func (s *stand) applies(what string, want ...string) {
	s.t.Helper()
	s.until(what, func() bool { return len(s.lists) > 0 && slices.Equal(s.lists[len(s.lists)-1], want) })
}

func (s *stand) put(of schema.GroupVersionResource, u *unstructured.Unstructured) {
	s.t.Helper()
	in := s.client.Resource(of).Namespace("models")
	_, err := in.Update(s.t.Context(), u, metav1.UpdateOptions{})
	if err != nil {
		_, err = in.Create(s.t.Context(), u, metav1.CreateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) remove(of schema.GroupVersionResource, name string) {
	s.t.Helper()
	if err := s.client.Resource(of).Namespace("models").Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// TestPool follows the pods of a pool: those that start, end, or are chosen by another selector or port.
func TestPool(t *testing.T) {
	leaving := podObject("d", "llama", "10.0.0.4", "Running")
	leaving.Object["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	leaving.SetFinalizers([]string{"x/y"})
	s := start(t, Config{Pool: "llama", Objectives: true},
		poolObject("llama", "llama", 8000, 8001), poolObject("other", "other", 9),
		podObject("a", "llama", "10.0.0.1", "Running"), podObject("b", "llama", "", "Pending"), podObject("c", "other", "10.0.0.3", "Running"), leaving,
		objectiveObject("chat", "llama", 5), objectiveObject("foreign", "other", 9))
	s.applies("the first list", "10.0.0.1:8000", "10.0.0.1:8001")
	s.until("priorities", func() bool { p, ok := s.Priority("chat"); return ok && p == 5 })
	if p, ok := s.Priority("foreign"); ok {
		t.Errorf("another pool's objective has priority %d", p)
	}
	s.put(pods, podObject("b", "llama", "fd00::2", "Running"))
	s.applies("a pod starts", "10.0.0.1:8000", "10.0.0.1:8001", "[fd00::2]:8000", "[fd00::2]:8001")
	s.put(pools, poolObject("llama", "llama", 8000))
	s.applies("a port leaves", "10.0.0.1:8000", "[fd00::2]:8000")
	s.remove(pods, "a")
	s.applies("a pod ends", "[fd00::2]:8000")
	s.put(pools, poolObject("llama", "other", 8000))
	s.applies("another selector", "10.0.0.3:8000")
	// the cluster of this test filters lists by labels, and not what it reports later
	s.put(pods, podObject("e", "other", "10.0.0.5", "Running"))
	s.applies("a pod of the new selector starts", "10.0.0.3:8000", "10.0.0.5:8000")
	s.put(objectives, objectiveObject("chat", "llama", -1))
	s.until("another priority", func() bool { p, _ := s.Priority("chat"); return p == -1 })

	s.mu.Lock()
	n := len(s.lists)
	s.mu.Unlock()
	s.put(pools, poolObject("llama", "", 8000)) // valid objects have a selector; an empty one would select every pod
	s.remove(pools, "llama")
	s.put(pools, poolObject("llama", "other", 8000, 1))
	s.applies("the pool is back", "10.0.0.3:1", "10.0.0.3:8000", "10.0.0.5:1", "10.0.0.5:8000")
	for _, list := range s.lists[n:] {
		if len(list) == 0 {
			t.Error("the workers of a pool that is replaced were taken for gone")
		}
	}
}

// TestService follows the EndpointSlices of a service, with the ports of the pool or of the service.
func TestService(t *testing.T) {
	objs := func() []runtime.Object {
		return []runtime.Object{
			poolObject("llama", "unused", 8000), podObject("p", "unused", "10.9.9.9", "Running"),
			sliceObject("one", "workers", "IPv4", 9000, endpoint("a", "10.0.0.1", false), endpoint("b", "10.0.0.2", true)),
			sliceObject("two", "workers", "IPv6", 9000, endpoint("a", "fd00::1", false), endpoint("c", "fd00::3", false)),
			sliceObject("other", "others", "IPv4", 9000, endpoint("z", "10.0.0.9", false)),
			sliceObject("name", "workers", "FQDN", 9000, endpoint("f", "example.com", false)),
		}
	}
	s := start(t, Config{Pool: "llama", Service: "workers"}, objs()...)
	s.applies("the pool's port", "10.0.0.1:8000", "[fd00::3]:8000")
	s.put(slicesOf, sliceObject("one", "workers", "IPv4", 9000, endpoint("b", "10.0.0.2", false)))
	s.applies("endpoints change", "10.0.0.2:8000", "[fd00::1]:8000", "[fd00::3]:8000")
	s = start(t, Config{Service: "workers"}, objs()...)
	s.applies("the service's port", "10.0.0.1:9000", "[fd00::3]:9000")
}

// TestAppliedAgain checks that a list which the gateway refused is applied again.
func TestAppliedAgain(t *testing.T) {
	s := start(t, Config{Pool: "llama"}, poolObject("llama", "llama", 1), podObject("a", "llama", "10.0.0.1", "Running"))
	s.applies("the first list", "10.0.0.1:1")
	s.mu.Lock()
	s.refuse = errors.New("not now")
	s.mu.Unlock()
	s.put(pods, podObject("b", "llama", "10.0.0.2", "Running"))
	s.until("the list is refused twice", func() bool { return len(s.lists) >= 3 })
	s.mu.Lock()
	s.refuse = nil
	n := len(s.lists)
	s.mu.Unlock()
	s.until("and applied", func() bool { return len(s.lists) > n })
}

func TestNew(t *testing.T) {
	_, err := New(Config{})
	for _, want := range []string{"Client", "Namespace", "Pool"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}
