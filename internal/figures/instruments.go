package figures

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Register makes the counters and histograms in the fields of the struct at into, and registers
// them with r. Tags are as in the package comment, with two exceptions: by lists the labels of a
// vector, separated by commas, and buckets is a key of the map buckets, whose value has a
// histogram's bounds. It panics if tags are wrong, and fails if r refuses an instrument, for
// example because it has the name already.
func Register(r prometheus.Registerer, n Names, into any, buckets map[string][]float64) error {
	v := reflect.ValueOf(into).Elem()
	for i := range v.NumField() {
		sf := v.Type().Field(i)
		tag := sf.Tag
		metric, help := tag.Get("metric"), tag.Get("help")
		if metric == "" || help == "" {
			panic(fmt.Sprintf("figures: %s.%s: want metric and help", v.Type(), sf.Name))
		}
		by := strings.Split(tag.Get("by"), ",")
		counter := prometheus.CounterOpts{Name: metric, Help: help, ConstLabels: n.Labels}
		histogram := prometheus.HistogramOpts{Name: metric, Help: help, ConstLabels: n.Labels, Buckets: buckets[tag.Get("buckets")]}
		switch p := v.Field(i).Addr().Interface().(type) {
		case *prometheus.Counter:
			*p = prometheus.NewCounter(counter)
		case **prometheus.CounterVec:
			*p = prometheus.NewCounterVec(counter, by)
		case *prometheus.Histogram:
			*p = prometheus.NewHistogram(histogram)
		case **prometheus.HistogramVec:
			*p = prometheus.NewHistogramVec(histogram, by)
		default:
			panic(fmt.Sprintf("figures: %s.%s is no instrument", v.Type(), sf.Name))
		}
		made := v.Field(i).Interface().(prometheus.Collector)
		for _, prefix := range []string{n.Prefix, n.Aliases[tag.Get("alias")]} {
			if prefix == "" {
				continue
			}
			if err := prometheus.WrapRegistererWithPrefix(prefix, r).Register(made); err != nil {
				return err
			}
		}
	}
	return nil
}
