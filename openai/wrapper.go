package openai

import "encoding/json"

// fillWrapper gives the schema of an object whose only property is a list that it does not
// require one that requires it. Clients wrap the list that they want so (instructor's
// create_iterable: {"tasks": [...]}), and take {} for a broken answer; an empty list says
// the same. Others are returned as they are.
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
