// Package inferencepool owns the list of workers of a picker in Kubernetes: the pods of an InferencePool
// (inference.networking.k8s.io/v1), by the pool's selector or by the EndpointSlices of a service, and the priorities of
// InferenceObjectives. It probes no worker, chooses none, and changes nothing in the cluster.
//
// It reads only the few fields that it needs, so it declares them itself. One goroutine runs Run; Priority may be called from any.
//
//	w, err := inferencepool.New(inferencepool.Config{Client: client, Namespace: "models", Pool: "llama", Apply: g.SetWorkers})
//	err = w.Run(ctx)
package inferencepool
