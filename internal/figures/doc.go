// Package figures makes Prometheus metrics and flat JSON from structs, by the tags of their
// fields. It counts nothing itself and starts no goroutine; Prometheus calls a collector from
// the goroutines of its scrapes.
//
// A figure is a field that holds a number, or a map from label values to numbers:
//
//	type Pool struct {
//		Pages     int               `json:"pages" api:"pool_pages" metric:"kv_pool_pages" help:"Pages of the pool."`
//		Evictions map[string]uint64 `json:"evictions" metric:"evictions_total" by:"reason" help:"Evictions by reason."`
//	}
//
// metric  name in Prometheus without the prefix; a counter if it ends in _total, else a gauge
// labels  constant labels: "tier=device,state=idle"
// by      label for a map's keys; for a list, label of its elements
// label   "true": this string is the element's value of the label named by "by"
// alias   set of names under which it also appears: "vllm" for vllm:NAME
// help    its meaning; of consecutive fields with the same metric, the first has it
// json    name in JSON; api: name in [Flat], if different
// why     reason why metric or api is "-", which leaves the field out
//
// A struct in a struct, or a pointer to one, adds its figures; a nil pointer adds none. A struct
// of instruments (counters, histograms) is filled and registered by [Register].
package figures
