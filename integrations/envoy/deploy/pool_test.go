package deploy

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// inferencePool is an InferencePool of inference.networking.k8s.io/v1, as Gateway API Inference Extension 1.0
// defines it. Its module does not resolve by Go's proxy, so its fields are repeated here.
type inferencePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		TargetPorts []struct {
			Number int32 `json:"number"`
		} `json:"targetPorts"`
		AppProtocol       string `json:"appProtocol"`
		EndpointPickerRef struct {
			Group string `json:"group"`
			Kind  string `json:"kind"`
			Name  string `json:"name"`
			Port  struct {
				Number int32 `json:"number"`
			} `json:"port"`
			FailureMode string `json:"failureMode"`
		} `json:"endpointPickerRef"`
	} `json:"spec"`
}

// decodePool decodes an InferencePool, and checks what its CRD checks.
func decodePool(json []byte) (*inferencePool, error) {
	var p inferencePool
	if err := yaml.UnmarshalStrict(json, &p); err != nil {
		return nil, err
	}
	s := &p.Spec
	ref := &s.EndpointPickerRef
	switch {
	case len(s.Selector.MatchLabels) == 0:
		return nil, fmt.Errorf("it selects nothing")
	case len(s.TargetPorts) < 1 || len(s.TargetPorts) > 8:
		return nil, fmt.Errorf("%d target ports, want 1 to 8", len(s.TargetPorts))
	case s.AppProtocol != "" && s.AppProtocol != "http" && s.AppProtocol != "kubernetes.io/h2c":
		return nil, fmt.Errorf("protocol %q", s.AppProtocol)
	case ref.Name == "" || ref.Port.Number < 1 || ref.Port.Number > 65535 || ref.Group != "" || ref.Kind != "" && ref.Kind != "Service":
		return nil, fmt.Errorf("picker %+v, want a service and its port", *ref)
	case ref.FailureMode != "" && ref.FailureMode != "FailOpen" && ref.FailureMode != "FailClose":
		return nil, fmt.Errorf("failure mode %q", ref.FailureMode)
	}
	for _, port := range s.TargetPorts {
		if port.Number < 1 || port.Number > 65535 {
			return nil, fmt.Errorf("target port %d", port.Number)
		}
	}
	return &p, nil
}
