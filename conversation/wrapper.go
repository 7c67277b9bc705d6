package conversation

import "encoding/json"

// FillWrapper makes the only property of an object schema required if it is a list. Clients wrap
// a list in such an object (instructor's create_iterable: {"tasks": [...]}) and take {} for a
// broken answer, while an empty list has the same meaning. Other schemas are returned unchanged.
func FillWrapper(schema []byte) []byte {
	var all map[string]json.RawMessage
	var v struct {
		Type       any
		Properties map[string]struct{ Type any }
		Required   []string
	}
	if json.Unmarshal(schema, &v) != nil || v.Type != "object" || len(v.Properties) != 1 || len(v.Required) > 0 || json.Unmarshal(schema, &all) != nil {
		return schema
	}
	for name, property := range v.Properties {
		if property.Type != "array" {
			return schema
		}
		required, err := json.Marshal([]string{name})
		if err != nil {
			return schema
		}
		all["required"] = required
	}
	filled, err := json.Marshal(all)
	if err != nil {
		return schema
	}
	return filled
}
