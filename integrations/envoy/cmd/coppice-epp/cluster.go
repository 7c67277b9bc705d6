package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-llm/coppice/gateway"
	"github.com/coppice-llm/coppice/integrations/envoy/inferencepool"
)

// ownNamespace is the file that names the namespace of a pod.
const ownNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// cluster returns the source that follows a pool or a service of Kubernetes.
func (c *command) cluster(log *zap.Logger) (*source, error) {
	cfg, err := rest.InClusterConfig()
	if c.Kubeconfig != "" {
		cfg, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	namespace := c.Namespace
	if namespace == "" {
		text, err := os.ReadFile(ownNamespace)
		if err != nil {
			return nil, fmt.Errorf("--namespace is not given, and this is no pod: %w", err)
		}
		namespace = strings.TrimSpace(string(text))
	}
	var w *inferencepool.Watcher
	apply := func([]gateway.WorkerConfig) error { return nil }
	w, err = inferencepool.New(inferencepool.Config{
		Client: client, Namespace: namespace, Pool: c.Pool, Service: c.Service, Objectives: c.Objectives,
		Apply: func(all []gateway.WorkerConfig) error { return apply(all) }, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &source{priority: w.Priority, run: func(ctx context.Context, to func([]gateway.WorkerConfig) error) error {
		apply = to
		return w.Run(ctx)
	}}, nil
}
