// Package jsonschema owns the way from a JSON Schema to a grammar of JSON texts:
// [Rules] gives what a model may write so that the text is valid against the
// schema. It never matches or masks anything; package grammar does that.
//
// Schemas are those of draft 2020-12 and draft-07, as callers of LLMs write them
// for structured outputs and tools. What the grammar matches is valid, and where
// a choice is left to us it is less than all that is valid:
//
//   - Properties come in the order in which the schema declares them, those that
//     are allowed but not declared after them.
//   - Absent additionalProperties allow more properties only where no properties
//     are declared, absent items more elements only where there are no
//     prefixItems. Both allow anything by the standard, but a model that may
//     invent properties does, and who lists some means these (OpenAI asks for
//     additionalProperties: false; others take it for granted too).
//     Config.AllowExtra is the standard's way.
//   - A schema without a type is for the types that its keywords are about:
//     {"properties": …} is an object, although the standard lets 7 pass.
//   - Strings that are fixed or have a pattern or format, and names, are written in
//     one way: escapes only where JSON needs them, the short ones first. Other
//     strings may have every escape that is one.
//   - Integers have neither fraction nor exponent, and numbers with bounds or
//     multipleOf no exponent. Digits are limited.
//   - White space is what json.MarshalIndent, Python's json.dumps and JavaScript's
//     JSON.stringify put between tokens, up to 32 of indentation; or none.
//
// It is more than all that is valid in two places: oneOf is anyOf, since it can't
// be told in general whether two branches overlap, and a format that is not
// listed here is an annotation, as the standard has it, and so is any format
// beside a pattern. The formats are date, time, date-time, duration, uuid, ipv4,
// ipv6, email, hostname and uri. Keywords that nobody knows are annotations.
//
// Refused, by an [Error] that names the place: not, if with then or else,
// uniqueItems, contains, dependencies, dependentRequired, dependentSchemas,
// unevaluatedItems, unevaluatedProperties, propertyNames, patternProperties but
// one beside no others, $dynamicRef, $recursiveRef, $ref to other documents and
// anchors, multipleOf but powers of ten up to 1, patterns with look-around,
// back-references or word boundaries, lengths beside a pattern of which more than
// one part has no fixed length, minProperties and maxProperties that some choice
// of declared properties would break, and enum beside keywords that take more
// than a look at its values. A keyword for a type that the schema excludes is
// passed over.
//
// A grammar in which over some 250 optional properties stand before the first
// required one may be too ambiguous for package grammar to compile.
//
// [Calls] gives the grammar of outputs that call tools, whose arguments are valid
// against each tool's schema.
//
// Everything is pure: equal schemas and equal Configs give equal rules.
//
//	rules, err := jsonschema.Rules(schema, jsonschema.Config{})
//	if errors.Is(err, jsonschema.ErrUnsupported) { ... } // err names the keyword and where it is
package jsonschema
