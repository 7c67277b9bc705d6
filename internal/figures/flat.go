package figures

import (
	"reflect"
	"strings"
)

// Flat returns the figures of a struct, and its other fields in the API, in one map for JSON.
// Lists become lists of maps.
func Flat(v any) map[string]any {
	flat := map[string]any{}
	value := reflect.ValueOf(v)
	flatten(parse(value.Type()), value, flat)
	return flat
}

// flatten adds the fields of the struct v to the map into. The fields of a struct in v are added
// to the same map; a list becomes a list of maps.
func flatten(fields []field, v reflect.Value, into map[string]any) {
	for i := range fields {
		f := &fields[i]
		value := v.Field(f.index)
		switch {
		case f.inner != nil && !f.list && value.Kind() == reflect.Struct:
			flatten(f.inner, value, into)
		case f.api == "":
		case f.list && f.inner != nil:
			list := make([]any, value.Len())
			for j := range list {
				element := map[string]any{}
				flatten(f.inner, value.Index(j), element)
				list[j] = element
			}
			into[f.api] = list
		default:
			into[f.api] = value.Interface()
		}
	}
}

// Copy sets each field of the struct at dst from the field of src with the same name, if the
// type can be converted. Embedded structs are included. It returns the names that dst lacks.
func Copy(dst, src any) (left []string) {
	to, from := reflect.ValueOf(dst).Elem(), reflect.ValueOf(src)
	for _, sf := range reflect.VisibleFields(from.Type()) {
		field := to.FieldByName(sf.Name)
		switch {
		case sf.Anonymous:
		case field.IsValid() && sf.Type.ConvertibleTo(field.Type()):
			field.Set(from.FieldByIndex(sf.Index).Convert(field.Type()))
		default:
			left = append(left, sf.Name)
		}
	}
	return left
}

// ByName returns the counts of a struct by their names in snake case.
func ByName(v any) map[string]uint64 {
	counts := map[string]uint64{}
	value := reflect.ValueOf(v)
	for i := range value.NumField() {
		if f := value.Field(i); f.CanUint() {
			counts[snake(value.Type().Field(i).Name)] = f.Uint()
		}
	}
	return counts
}

// snake turns StoredBlocks into stored_blocks.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
