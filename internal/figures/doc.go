// Package figures makes Prometheus metrics and flat JSON of structs, by the tags of their fields. It counts nothing itself
// and starts no goroutine; Prometheus calls a collector from the goroutines of its scrapes.
//
// A figure is a field that holds a number, or a map from label values to numbers:
//
//	type Pool struct {
//		Pages     int               `json:"pages" api:"pool_pages" metric:"kv_pool_pages" help:"Pages of the pool."`
//		Evictions map[string]uint64 `json:"evictions" metric:"evictions_total" by:"reason" help:"Evictions by reason."`
//	}
//
//	metric  name in Prometheus without the prefix; a counter if it ends in _total, else a gauge
//	labels  constant labels: "tier=device,state=idle"
//	by      label of a map's keys; of a list, label of its elements
//	label   "true": this string names the list's element in the label that by gives
//	alias   also goes by this set of names: "vllm" for vllm:NAME
//	help    what it means, by itself; of fields in a row with one metric the first has it
//	json    name in JSON; api: name in [Flat], where it is another one
//	why     why metric or api is "-", which leaves the field out
//
// A struct in a struct, or behind a pointer, adds its figures; a nil pointer has none. A struct of instruments (counters,
// histograms) is filled and registered by [Register].
package figures
