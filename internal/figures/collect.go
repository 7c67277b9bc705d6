package figures

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// collector reads a T at each scrape.
type collector[T any] struct {
	fields []field
	read   func() T
}

// Collector returns the metrics of a T, which read returns at each scrape. It panics if T's tags
// are wrong.
func Collector[T any](n Names, read func() T) prometheus.Collector {
	c := &collector[T]{parse(reflect.TypeFor[T]()), read}
	n.describe(c.fields, nil)
	return c
}

// Describe implements prometheus.Collector.
func (c *collector[T]) Describe(to chan<- *prometheus.Desc) { describeAll(c.fields, to) }

func describeAll(fields []field, to chan<- *prometheus.Desc) {
	for i := range fields {
		for _, d := range fields[i].descs {
			to <- d
		}
		describeAll(fields[i].inner, to)
	}
}

// Collect implements prometheus.Collector.
func (c *collector[T]) Collect(to chan<- prometheus.Metric) {
	collect(c.fields, reflect.ValueOf(c.read()), nil, to)
}

// collect sends the metrics of the struct v, whose fields are described by fields. labels are the
// label values of the list elements that v is part of, outermost first.
func collect(fields []field, v reflect.Value, labels []string, to chan<- prometheus.Metric) {
	for i := range fields {
		f := &fields[i]
		value := v.Field(f.index)
		if value.Kind() == reflect.Pointer {
			if value.IsNil() {
				continue
			}
			value = value.Elem()
		}
		switch {
		case f.list && f.inner != nil:
			for j := range value.Len() {
				element := value.Index(j)
				collect(f.inner, element, append(labels[:len(labels):len(labels)], name(f.inner, element)), to)
			}
		case f.inner != nil:
			collect(f.inner, value, labels, to)
		case f.metric == "":
		case f.keyed:
			for _, key := range value.MapKeys() {
				f.send(to, value.MapIndex(key), append(labels[:len(labels):len(labels)], key.String()))
			}
		default:
			f.send(to, value, labels)
		}
	}
}

// name returns the label value of an element of a list: the field with the tag label. It is "" if
// there is no such field.
func name(fields []field, element reflect.Value) string {
	for i := range fields {
		if fields[i].label {
			return fmt.Sprint(element.Field(fields[i].index).Interface())
		}
	}
	return ""
}

// send sends one value under the field's name and its alias. labels are the values of the labels
// that are not constant.
func (f *field) send(to chan<- prometheus.Metric, value reflect.Value, labels []string) {
	kind := prometheus.GaugeValue
	if strings.HasSuffix(f.metric, "_total") {
		kind = prometheus.CounterValue
	}
	labels = append(f.fixed[1][:len(f.fixed[1]):len(f.fixed[1])], labels...)
	for _, d := range f.descs {
		to <- prometheus.MustNewConstMetric(d, kind, number(value), labels...)
	}
}

// number converts a field's value; true is 1.
func number(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	case v.Kind() == reflect.Bool && v.Bool():
		return 1
	case v.Kind() == reflect.Bool:
		return 0
	}
	return v.Float()
}
