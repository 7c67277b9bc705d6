package deploy

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// kustomized builds the kustomization of a release from these files, as kubectl apply -k does. Every object must be one of
// Kubernetes' types, without a field that the type lacks.
func kustomized(t *testing.T, files map[string]string) (objects, error) {
	t.Helper()
	fsys := filesys.MakeFsInMemory()
	for name, text := range files {
		if err := fsys.WriteFile(filepath.Join("kustomize", name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fsys, "kustomize")
	if err != nil {
		return nil, err
	}
	decoder, found := strict(t), objects{}
	for _, r := range built.Resources() {
		text, err := r.MarshalJSON()
		if err != nil {
			return nil, err
		}
		o, _, err := decoder.Decode(text, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.CurId(), err)
		}
		key := r.GetKind() + "/" + r.GetName()
		if kind := r.GetKind(); kind == "ConfigMap" {
			key = kind // its name ends in a hash
		}
		found[key] = o
	}
	return found, nil
}

// kustomization returns the files of a release's kustomization.
func kustomization(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{"kustomization.yaml", "node.yaml", "coppice.json"} {
		files[name] = string(read(t, filepath.Join("..", "..", "..", "tools", "release", "files", "kustomize", name)))
	}
	return files
}

// TestKustomization builds one node with a disk tier: its parts must fit together.
func TestKustomization(t *testing.T) {
	files := kustomization(t)
	o, err := kustomized(t, files)
	if err != nil {
		t.Fatal(err)
	}
	if len(o) != 3 {
		t.Errorf("%d objects: %v", len(o), o)
	}
	config, set, service := o["ConfigMap"].(*corev1.ConfigMap), o["StatefulSet/coppice"].(*appsv1.StatefulSet), o["Service/coppice"].(*corev1.Service)
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	var settings map[string]string
	if err := json.Unmarshal([]byte(config.Data["coppice.json"]), &settings); err != nil {
		t.Fatal(err)
	}
	for _, v := range pod.Volumes {
		if m := v.ConfigMap; m != nil && (m.Name != config.Name || m.Name == "coppice") {
			t.Errorf("the pod mounts %s, the settings are in %s: a change of them would not restart it", m.Name, config.Name)
		}
	}
	if c.Image != "coppice:VERSION" {
		t.Errorf("the image is %s; tools/release puts its version in place of VERSION", c.Image)
	}
	if port := fmt.Sprintf(":%d", c.Ports[0].ContainerPort); settings["addr"] != port || service.Spec.Ports[0].TargetPort.StrVal != c.Ports[0].Name {
		t.Errorf("the server listens at %s, the container's port is %s, the service's %+v", settings["addr"], port, service.Spec.Ports[0])
	}
	for label, value := range service.Spec.Selector {
		if set.Spec.Template.Labels[label] != value || set.Spec.Selector.MatchLabels[label] != value {
			t.Errorf("the service selects %s=%s, the pods have %v", label, value, set.Spec.Template.Labels)
		}
	}
	claim := set.Spec.VolumeClaimTemplates[0].Name
	if m := c.VolumeMounts[0]; m.Name != claim || !strings.HasPrefix(settings["kv-disk"], m.MountPath+"/") {
		t.Errorf("KV goes to %s, the volume %s is mounted at %s (claim %s)", settings["kv-disk"], m.Name, m.MountPath, claim)
	}
	s := c.SecurityContext
	if !*pod.SecurityContext.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || len(s.Capabilities.Drop) == 0 || *pod.AutomountServiceAccountToken {
		t.Errorf("the server may do more than it needs: %+v, %+v", pod.SecurityContext, s)
	}
	if c.StartupProbe == nil || c.LivenessProbe == nil || c.ReadinessProbe == nil || c.Resources.Requests.Memory().IsZero() {
		t.Error("the server lacks probes or resources")
	}
}

// TestKustomizationFaults: a field that a type lacks and a file that is not there are found.
func TestKustomizationFaults(t *testing.T) {
	for want, change := range map[string]func(files map[string]string){
		"unknown field": func(files map[string]string) {
			files["node.yaml"] = strings.Replace(files["node.yaml"], "readOnlyRootFilesystem", "readOnlyRootFileSystem", 1)
		},
		"more.yaml": func(files map[string]string) {
			files["kustomization.yaml"] = strings.Replace(files["kustomization.yaml"], "- node.yaml", "- node.yaml\n- more.yaml", 1)
		},
	} {
		files := kustomization(t)
		change(files)
		if o, err := kustomized(t, files); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", want, o, err)
		}
	}
}
