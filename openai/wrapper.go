package openai

import "encoding/json"

// fillWrapper makes the only property of an object schema required if it is a list. Clients wrap
// a list in such an object (instructor's create_iterable: {"tasks": [...]}) and take {} for a
// broken answer, while an empty list has the same meaning. Other schemas are returned unchanged.
func fillWrapper(schema []byte) []byte {
	var v struct {
		Type       any
		Properties map[string]json.RawMessage
		Required   []string
	}
	if json.Unmarshal(schema, &v) != nil || v.Type != "object" || len(v.Properties) != 1 || len(v.Required) > 0 {
		return schema
	}
	for name, raw := range v.Properties {
		var property struct{ Type any }
		if json.Unmarshal(raw, &property) != nil || property.Type != "array" {
			return schema
		}
		v.Required = []string{name}
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(schema, &all) != nil {
		return schema
	}
	required, err := json.Marshal(v.Required)
	if err != nil {
		return schema
	}
	all["required"] = required
	filled, err := json.Marshal(all)
	if err != nil {
		return schema
	}
	return filled
}
