package deploy

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// objects are what a chart renders to, by kind and name.
type objects map[string]any

// strict returns a decoder for the kinds that the chart may have. It refuses fields that a kind does not
// have, and fields that occur twice.
func strict(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, autoscalingv2.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
		rbacv1.AddToScheme, monitoringv1.AddToScheme, gatewayv1.Install,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

func loaded(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load("chart")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render renders the chart with these values, as helm install fleet --namespace llm does.
func render(t *testing.T, values map[string]any) (objects, error) {
	t.Helper()
	c := loaded(t)
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "fleet", Namespace: "llm", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	decoder, found := strict(t), objects{}
	for file, text := range files {
		for _, part := range strings.Split(text, "\n---\n") {
			if !strings.Contains(part, "kind:") {
				continue
			}
			json, err := utilyaml.ToJSON([]byte(part))
			if err != nil {
				t.Fatalf("%s: %v\n%s", file, err, part)
			}
			var o any
			kind := regexp.MustCompile(`(?m)^kind: (\S+)$`).FindStringSubmatch(part)[1]
			if kind == "InferencePool" {
				o, err = decodePool(json)
			} else {
				o, _, err = decoder.Decode(json, nil, nil)
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", file, err, part)
				continue
			}
			key := kind + "/" + regexp.MustCompile(`(?m)^  name: (\S+)$`).FindStringSubmatch(part)[1]
			if found[key] != nil {
				t.Errorf("%s twice", key)
			}
			found[key] = o
		}
	}
	return found, nil
}

func must(t *testing.T, values map[string]any) objects {
	t.Helper()
	o, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// everything turns on all that is off by default.
func everything() map[string]any {
	return map[string]any{
		"hpa":        map[string]any{"enabled": true},
		"route":      map[string]any{"enabled": true, "gateway": "public", "hostnames": []any{"llm.example.com"}},
		"monitoring": map[string]any{"podMonitor": true, "rules": true, "dashboards": true, "labels": map[string]any{"release": "prometheus"}},
		"picker": map[string]any{
			"args": []any{"--session-ttl=1h"}, "podAnnotations": map[string]any{"a": "b"}, "nodeSelector": map[string]any{"pool": "cpu"},
			"tolerations": []any{map[string]any{"key": "cpu", "operator": "Exists"}}, "affinity": map[string]any{"podAntiAffinity": map[string]any{}},
		},
		"workers": map[string]any{
			"volumes":        []any{map[string]any{"name": "models", "persistentVolumeClaim": map[string]any{"claimName": "models"}}},
			"volumeMounts":   []any{map[string]any{"name": "models", "mountPath": "/models", "readOnly": true}},
			"podAnnotations": map[string]any{"a": "b"}, "nodeSelector": map[string]any{"pool": "gpu"},
			"tolerations": []any{map[string]any{"key": "gpu", "operator": "Exists"}}, "affinity": map[string]any{"nodeAffinity": map[string]any{}},
		},
		"imagePullSecrets": []any{map[string]any{"name": "pull"}},
	}
}

// TestChart renders the chart in each form that its values can give it. Every object must be one of
// Kubernetes', the extension's or the operator's types, without a field that the type lacks.
func TestChart(t *testing.T) {
	for name, tc := range map[string]struct {
		values map[string]any
		want   int
	}{
		"defaults":          {nil, 12},
		"everything":        {everything(), 19},
		"only a picker":     {map[string]any{"workers": map[string]any{"enabled": false}, "nats": map[string]any{"enabled": false}, "picker": map[string]any{"replicas": 1}}, 6},
		"NATS of their own": {map[string]any{"nats": map[string]any{"url": "nats://nats.messaging:4222"}}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			if o := must(t, tc.values); len(o) != tc.want {
				t.Errorf("%d objects, want %d: %v", len(o), tc.want, slices.Sorted(keys(o)))
			}
		})
	}
}

func keys(o objects) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range o {
			if !yield(k) {
				return
			}
		}
	}
}

// TestChartRefuses: values that would give a fleet that does not work.
func TestChartRefuses(t *testing.T) {
	for want, values := range map[string]map[string]any{
		"do not share their predictions": {"nats": map[string]any{"enabled": false}},
		"route.gateway is empty":         {"route": map[string]any{"enabled": true}},
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestRoleIsLeast: the picker may read its own pool and the addresses of pods, in its namespace only, and
// nothing else has a token.
func TestRoleIsLeast(t *testing.T) {
	o := must(t, everything())
	rules := o["Role/fleet-picker"].(*rbacv1.Role).Rules
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"inference.networking.k8s.io"}, Resources: []string{"inferencepools"}, ResourceNames: []string{"fleet"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list", "watch"}},
	}
	if fmt.Sprint(rules) != fmt.Sprint(want) {
		t.Errorf("rules %v, want %v", rules, want)
	}
	for key, obj := range o {
		if strings.HasPrefix(key, "ClusterRole") {
			t.Errorf("%s", key)
		}
		d, ok := obj.(*appsv1.Deployment)
		if !ok {
			continue
		}
		pod := d.Spec.Template.Spec
		if token := *pod.AutomountServiceAccountToken; token != (key == "Deployment/fleet-picker") {
			t.Errorf("%s: a token is mounted: %v", key, token)
		}
		for _, c := range pod.Containers {
			s := c.SecurityContext
			if s == nil || !*s.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || len(s.Capabilities.Drop) == 0 {
				t.Errorf("%s: %s may do more than it needs: %v", key, c.Name, s)
			}
			if c.LivenessProbe == nil || c.ReadinessProbe == nil || c.Resources.Requests.Memory().IsZero() {
				t.Errorf("%s: %s lacks probes or resources", key, c.Name)
			}
		}
	}
}

// TestPodsOfOthers: without a service the picker reads the pods that the pool selects, and no EndpointSlices.
func TestPodsOfOthers(t *testing.T) {
	o := must(t, map[string]any{"workers": map[string]any{"enabled": false}, "pool": map[string]any{"selector": map[string]any{"app": "vllm"}}})
	rules := fmt.Sprint(o["Role/fleet-picker"].(*rbacv1.Role).Rules)
	args := fmt.Sprint(o["Deployment/fleet-picker"].(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Args)
	labels := o["InferencePool/fleet"].(*inferencePool).Spec.Selector.MatchLabels
	if !strings.Contains(rules, "pods") || strings.Contains(rules, "endpointslices") || strings.Contains(args, "--service") || labels["app"] != "vllm" || len(labels) != 1 {
		t.Errorf("rules %s, arguments %s, selector %v", rules, args, labels)
	}
}

// TestPoolMeetsPods: the pool selects the pods of the workers, at the port where they listen, and names
// the service of the picker. The autoscaler's metrics are among the adapter's.
func TestPoolMeetsPods(t *testing.T) {
	o := must(t, everything())
	pool := o["InferencePool/fleet"].(*inferencePool).Spec
	worker := o["Deployment/fleet-worker"].(*appsv1.Deployment)
	for label, value := range pool.Selector.MatchLabels {
		if worker.Spec.Template.Labels[label] != value {
			t.Errorf("the pool selects %s=%s, the workers' pods have %v", label, value, worker.Spec.Template.Labels)
		}
	}
	if worker.Spec.Replicas != nil {
		t.Error("the deployment sets the number of workers beside the autoscaler")
	}
	port := worker.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort
	service := o["Service/"+pool.EndpointPickerRef.Name].(*corev1.Service).Spec
	if len(pool.Selector.MatchLabels) == 0 || pool.TargetPorts[0].Number != port || service.Ports[0].Port != pool.EndpointPickerRef.Port.Number {
		t.Errorf("pool %+v, port of workers %d, of the picker %+v", pool, port, service.Ports)
	}
	args := strings.Join(o["Deployment/fleet-picker"].(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Args, " ")
	for _, want := range []string{"--pool=fleet", "--service=fleet-workers", "--replicas=nats://fleet-nats:4222", "--events=auto", "--session-ttl=1h"} {
		if !strings.Contains(args, want) {
			t.Errorf("the picker's arguments lack %s: %s", want, args)
		}
	}
	adapter, err := os.ReadFile("chart/files/prometheus-adapter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	metrics := o["HorizontalPodAutoscaler/fleet-worker"].(*autoscalingv2.HorizontalPodAutoscaler).Spec.Metrics
	for _, m := range metrics {
		if name := m.Pods.Metric.Name; !strings.Contains(string(adapter), "'"+name+"{") || !documented(t)[name] {
			t.Errorf("the autoscaler reads %s, which the adapter or docs/metrics.md does not have", name)
		}
	}
	if len(metrics) != 2 {
		t.Errorf("%d signals", len(metrics))
	}
}
