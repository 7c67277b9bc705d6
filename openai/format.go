package openai

import (
	"regexp"
	"strings"

	"github.com/coppice-llm/coppice/conversation"
	"github.com/coppice-llm/coppice/internal/jsonbody"
)

// setFormat sets the format f that the output must match; v is the field that it came from. A
// second format in another field is a fault. The node checks whether the format compiles.
func (r *reading) setFormat(v value, f conversation.Format) {
	from := v.String()
	if r.From.Format != "" && r.From.Format != from {
		r.Fail(v, "invalid_value", "%s and %s both constrain the output, want one", r.From.Format, from)
	}
	r.From.Format, r.From.Answer, r.Format = from, from == "response_format", f
}

// responseFormat reads response_format: {"type": "text"}, {"type": "json_object"}, or {"type":
// "json_schema", "json_schema": {"schema": …}}.
func (r *reading) responseFormat(v value) {
	var kind string
	var schema, objectSchema value
	r.Fields(v, "response_format.", map[string]func(value){
		"type":        func(v value) { kind = r.OneOf(v, "text", "json_object", "json_schema") },
		"json_schema": func(v value) { schema = v },
		"schema":      func(v value) { objectSchema = v }, // next to json_object, as in llama.cpp's server
	})
	switch {
	case kind == "":
		r.Fail(v.At("type"), "missing_required_parameter", "%s is missing: text, json_object or json_schema", v.At("type"))
	case schema.Raw != nil && kind != "json_schema":
		r.Fail(schema, "invalid_value", "%s is given, but %s is %q", schema, v.At("type"), kind)
	case objectSchema.Raw != nil && kind != "json_object":
		r.Fail(objectSchema, "invalid_value", "%s is given, but %s is %q", objectSchema, v.At("type"), kind)
	case objectSchema.Raw != nil:
		r.setSchema(v, objectSchema, conversation.FillWrapper(objectSchema.Raw))
	case kind == "json_object":
		r.setFormat(v, conversation.Format{JSON: true})
	case kind == "json_schema":
		r.namedSchema(v, schema)
	}
}

// namedSchema reads v: {"name", "description", "strict", "schema"}. at is the field
// response_format, which contains v; v.Raw is nil if v is missing. A schema is always enforced,
// whatever strict says.
func (r *reading) namedSchema(at, v value) {
	if v.Raw == nil {
		r.Missing(at.At("json_schema"))
	}
	var found bool
	text := func(v value) { r.Text(v) }
	r.Fields(v, "response_format.json_schema.", map[string]func(value){
		"name": text, "description": text,
		"strict": func(v value) { r.Flag(v) },
		"schema": func(v value) {
			found = true
			r.setSchema(at, v, conversation.FillWrapper(v.Raw))
		},
	})
	if !found {
		r.Missing(v.At("schema"))
	}
}

// setSchema sets the format to a JSON schema. at is the field to which errors about several
// formats refer, v the schema in the request, and schema the text to use.
func (r *reading) setSchema(at, v value, schema []byte) {
	if schema[0] != '{' && schema[0] != 't' && schema[0] != 'f' {
		r.Want(v, "a JSON schema, which is an object")
	}
	r.setFormat(at, conversation.SchemaFormat(schema))
}

// regex reads an RE2 expression that the whole output must match.
func (r *reading) regex(v value) {
	s := r.Text(v)
	if s == "" {
		r.Fail(v, "invalid_value", "%s is empty, so the output would be empty", v)
	}
	r.setFormat(v, conversation.Format{Regexp: s})
}

// guidedJSON reads a schema, or a string that contains one.
func (r *reading) guidedJSON(v value) {
	if v.Raw[0] != '"' {
		r.setSchema(v, v, v.Raw)
		return
	}
	inner, fault := jsonbody.ParseObject([]byte(r.Text(v)))
	if fault != nil {
		r.Fail(v, "invalid_value", "%s contains no JSON schema: %s", v, fault.Message)
	}
	r.setSchema(v, v, inner.Raw)
}

// choice reads a list of texts, one of which the output must be.
func (r *reading) choice(v value) {
	texts := r.Texts(v, maxTexts)
	if len(texts) == 0 {
		r.Fail(v, "invalid_value", "%s is empty, want at least one choice", v)
	}
	for i, s := range texts {
		if s == "" {
			r.Fail(v.Index(i), "invalid_value", "%s is empty", v.Index(i))
		}
		texts[i] = regexp.QuoteMeta(s)
	}
	r.setFormat(v, conversation.Format{Regexp: strings.Join(texts, "|")})
}

// structured reads vLLM's newer form of the guided_… fields.
func (r *reading) structured(v value) {
	refuse := func(v value) {
		r.Fail(v, conversation.Unsupported, "%s is not supported: give json, regex or choice", v)
	}
	r.Fields(v, "structured_outputs.", map[string]func(value){
		"json": r.guidedJSON, "regex": r.regex, "choice": r.choice, "grammar": refuse, "structural_tag": refuse,
		"json_object": func(v value) {
			if r.Flag(v) {
				r.setFormat(v, conversation.Format{JSON: true})
			}
		},
	})
}
