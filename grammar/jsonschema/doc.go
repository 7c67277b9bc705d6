// Package jsonschema translates a JSON Schema into a grammar: [Rules] matches JSON texts that
// are valid against the schema. It owns that translation. It never matches or masks anything;
// package grammar does that.
//
// Schemas are those of draft 2020-12 and draft-07, as they are written for structured outputs
// and tools of LLMs. Texts that the grammar matches are valid (for two exceptions, see below).
// It matches only some of the valid texts:
//
//   - Properties are in the order in which the schema declares them, followed by those that
//     are allowed but not declared.
//   - If additionalProperties is absent, more properties are allowed only where none are
//     declared. If items is absent, more elements are allowed only where there are no
//     prefixItems. The standard allows anything in both cases. But a model that may invent
//     properties does so, and a schema that lists some usually means no others (OpenAI
//     requires additionalProperties: false; other servers assume it). Config.AllowExtra
//     follows the standard.
//   - A schema without a type has the types that its keywords apply to: {"properties": …} is
//     an object, although the standard accepts 7.
//   - Property names, and strings with a fixed value, pattern or format, are written in one
//     way: escapes only where JSON needs them, short ones where there is one. Other strings may
//     contain any valid escape.
//   - Integers have neither fraction nor exponent. Numbers with bounds or multipleOf have no
//     exponent. The number of digits is limited.
//   - White space is as json.MarshalIndent, Python's json.dumps or JavaScript's JSON.stringify
//     write it, with indentation up to 32; or there is none.
//
// In two cases the grammar matches texts that are not valid. oneOf is treated as anyOf, because
// it is undecidable in practice whether two branches overlap. A format that is not listed here,
// or that is next to a pattern, is only an annotation, as the standard permits. The
// enforced formats are date, time, date-time, duration, uuid, ipv4, ipv6, email, hostname and
// uri. Unknown keywords are annotations.
//
// These are refused, with an [Error] that names the place:
//
//   - not, if with then or else, uniqueItems, contains, dependencies, dependentRequired,
//     dependentSchemas, unevaluatedItems, unevaluatedProperties, propertyNames, $dynamicRef and
//     $recursiveRef;
//   - patternProperties, except a single pattern without other properties;
//   - $ref to other documents and to anchors;
//   - multipleOf other than 1, 0.1, 0.01 and so on;
//   - patterns with look-around, back-references or word boundaries;
//   - lengths next to a pattern of which several parts have no fixed length;
//   - minProperties and maxProperties that some choice of the declared properties would break;
//   - enum next to keywords that can't be checked on its values one by one.
//
// A keyword for a type that the schema excludes is ignored.
//
// A grammar with over some 250 optional properties before the first required one may be too
// ambiguous for package grammar to compile.
//
// [ToolCalls] gives the grammar of outputs that call tools, whose arguments are valid
// against each tool's schema.
//
// Everything is pure: equal schemas and equal Configs give equal rules.
//
//	rules, err := jsonschema.Rules(schema, jsonschema.Config{})
//	if errors.Is(err, jsonschema.ErrUnsupported) { ... } // err names the keyword and where it is
package jsonschema
