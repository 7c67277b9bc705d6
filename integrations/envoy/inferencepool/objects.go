package inferencepool

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-llm/coppice/gateway"
)

// The resources that a Watcher reads.
var (
	pools      = schema.GroupVersionResource{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	slicesOf   = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	objectives = schema.GroupVersionResource{Group: "inference.networking.x-k8s.io", Version: "v1alpha2", Resource: "inferenceobjectives"}
)

// serviceLabel is the label of an EndpointSlice that names its service.
const serviceLabel = "kubernetes.io/service-name"

// pool is an InferencePool.
type pool struct {
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		TargetPorts []struct {
			Number int64 `json:"number"`
		} `json:"targetPorts"`
	} `json:"spec"`
}

// pod is a Pod.
type pod struct {
	Metadata struct {
		DeletionTimestamp string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Status struct {
		PodIP string `json:"podIP"`
		Phase string `json:"phase"`
	} `json:"status"`
}

// endpointSlice is an EndpointSlice.
type endpointSlice struct {
	AddressType string `json:"addressType"`
	Endpoints   []struct {
		Addresses  []string `json:"addresses"`
		Conditions struct {
			Terminating *bool `json:"terminating"`
		} `json:"conditions"`
		TargetRef struct {
			Name string `json:"name"`
		} `json:"targetRef"`
	} `json:"endpoints"`
	Ports []struct {
		Port int64 `json:"port"`
	} `json:"ports"`
}

// objective is an InferenceObjective.
type objective struct {
	Spec struct {
		Priority int64 `json:"priority"`
		PoolRef  struct {
			Name string `json:"name"`
		} `json:"poolRef"`
	} `json:"spec"`
}

// read converts an object of an informer. An object of another form counts as empty.
func read[T any](obj any) (name string, v T) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		name = u.GetName()
		if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &v) != nil {
			v = *new(T)
		}
	}
	return name, v
}

// workers returns a worker for each port of each address.
func workers(addrs []string, ports []int64) (all []gateway.WorkerConfig) {
	for _, addr := range addrs {
		for _, port := range ports {
			all = append(all, gateway.WorkerConfig{URL: "http://" + net.JoinHostPort(addr, strconv.FormatInt(port, 10))})
		}
	}
	slices.SortFunc(all, func(a, b gateway.WorkerConfig) int { return cmp.Compare(a.URL, b.URL) })
	return slices.Compact(all)
}

// ports returns the pool's ports: each is a worker of its own, such as a data-parallel rank.
func (p *pool) ports() (all []int64) {
	for _, t := range p.Spec.TargetPorts {
		all = append(all, t.Number)
	}
	return all
}

// ofPods returns the addresses of running pods. Readiness does not matter: the gateway probes workers itself, and
// knows the cache of a worker that is only busy for a moment. Pods that are being deleted get no new requests.
func ofPods(objs []any) (addrs []string) {
	for _, obj := range objs {
		if _, p := read[pod](obj); p.Status.PodIP != "" && p.Metadata.DeletionTimestamp == "" && p.Status.Phase == "Running" {
			addrs = append(addrs, p.Status.PodIP)
		}
	}
	return addrs
}

// ofSlices returns the addresses of a service's endpoints, of a pod with several the IPv4 one, and the ports that the slices name.
func ofSlices(objs []any) (addrs []string, ports []int64) {
	of := map[string]string{} // by pod
	numbers := map[int64]bool{}
	for _, obj := range objs {
		_, s := read[endpointSlice](obj)
		for _, p := range s.Ports {
			numbers[p.Port] = p.Port > 0
		}
		for _, e := range s.Endpoints {
			if len(e.Addresses) == 0 || e.Conditions.Terminating != nil && *e.Conditions.Terminating || s.AddressType == "FQDN" {
				continue
			}
			key := cmp.Or(e.TargetRef.Name, e.Addresses[0])
			if of[key] == "" || s.AddressType == "IPv4" {
				of[key] = e.Addresses[0]
			}
		}
	}
	return slices.Sorted(maps.Values(of)), slices.Sorted(maps.Keys(numbers))
}
