package figures

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

type pool struct {
	Pages int  `json:"pages" api:"pool_pages" metric:"pages" labels:"state=all" help:"Pages by state."`
	Idle  int  `json:"idle" metric:"pages" labels:"state=idle"`
	Full  bool `json:"full" metric:"full" alias:"other" help:"1 if no page is idle."`
}

type worker struct {
	Name  string `json:"name" label:"true"`
	Reads uint64 `json:"reads" metric:"reads_total" help:"Reads by worker."`
	Hits  uint64 `json:"hits" metric:"hits_total" by:"source" help:"Hits by source."`
	Ranks []rank `json:"ranks" by:"rank"`
}

type rank struct {
	Rank  uint32  `json:"rank" label:"true"`
	Share float64 `json:"share" metric:"share" help:"Share by worker and rank."`
}

type tree struct {
	Pool    pool              `json:"pool"`
	Ends    map[string]uint64 `json:"ends" metric:"ends_total" by:"reason" help:"Ends by reason."`
	Workers []worker          `json:"workers" by:"worker"`
	Events  *pool             `json:"-"`
	Sum     int               `json:"sum" api:"-" metric:"-" why:"of the others"`
}

var sample = tree{Pool: pool{5, 2, true}, Ends: map[string]uint64{"stop": 3}, Workers: []worker{{Name: "a", Reads: 1, Hits: 4, Ranks: []rank{{1, 0.5}}}}, Sum: 9}

// gathered returns the series of a registry as text.
func gathered(t *testing.T, r *prometheus.Registry) (series []string) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			s := f.GetName() + " " + f.GetType().String()
			for _, l := range m.Label {
				s += " " + l.GetName() + "=" + l.GetValue()
			}
			series = append(series, s+fmt.Sprint(" ", m.GetCounter().GetValue()+m.GetGauge().GetValue()+m.GetHistogram().GetSampleSum()))
		}
	}
	return series
}

func TestCollector(t *testing.T) {
	r := prometheus.NewRegistry()
	names := Names{Prefix: "x_", Labels: prometheus.Labels{"model": "m"}, Aliases: map[string]string{"other": "other:"}}
	if err := r.Register(Collector(names, func() tree { return sample })); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"other:full GAUGE model=m 1", "x_ends_total COUNTER model=m reason=stop 3", "x_full GAUGE model=m 1", "x_hits_total COUNTER model=m source=a 4",
		"x_pages GAUGE model=m state=all 5", "x_pages GAUGE model=m state=idle 2", "x_reads_total COUNTER model=m worker=a 1", "x_share GAUGE model=m rank=1 worker=a 0.5",
	}
	if got := gathered(t, r); !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	const flat = `{"ends":{"stop":3},"full":true,"idle":2,"pool_pages":5,"workers":[{"hits":4,"name":"a","ranks":[{"rank":1,"share":0.5}],"reads":1}]}`
	if got, err := json.Marshal(Flat(sample)); err != nil || string(got) != flat {
		t.Errorf("%s, %v, want %s", got, err, flat)
	}
}

func TestRegister(t *testing.T) {
	var into struct {
		Asked prometheus.Counter     `metric:"asked_total" help:"Questions."`
		Took  prometheus.Histogram   `metric:"took_seconds" alias:"other" buckets:"s" help:"Time of a question."`
		Ended *prometheus.CounterVec `metric:"ended_total" by:"why,who" help:"Ends."`
	}
	r := prometheus.NewRegistry()
	if err := Register(r, Names{Prefix: "x_", Aliases: map[string]string{"other": "other:"}}, &into, map[string][]float64{"s": {1, 2}}); err != nil {
		t.Fatal(err)
	}
	into.Asked.Inc()
	into.Took.Observe(1.5)
	into.Ended.WithLabelValues("stop", "me").Add(2)
	want := []string{"other:took_seconds HISTOGRAM 1.5", "x_asked_total COUNTER 1", "x_ended_total COUNTER who=me why=stop 2", "x_took_seconds HISTOGRAM 1.5"}
	if got := gathered(t, r); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCopy(t *testing.T) {
	type inner struct{ Reads uint32 }
	type source struct {
		inner
		Name  string
		Other []int
	}
	var into struct {
		Reads uint64
		Name  string
		Own   int
	}
	left := Copy(&into, source{inner{7}, "a", nil})
	if into.Reads != 7 || into.Name != "a" || !slices.Equal(left, []string{"Other"}) {
		t.Errorf("%+v, left %q", into, left)
	}
	if got := ByName(struct{ StoredBlocks, Gaps uint64 }{1, 2}); len(got) != 2 || got["stored_blocks"] != 1 || got["gaps"] != 2 {
		t.Error(got)
	}
}

// TestTagsThatSayTooLittle: a figure without help, or left out without a reason, panics.
func TestTagsThatSayTooLittle(t *testing.T) {
	for _, v := range []any{
		struct {
			A int `json:"a" metric:"a"`
		}{},
		struct {
			A int `json:"a"`
		}{},
		struct {
			A int `json:"a" api:"-" metric:"a" help:"A."`
		}{},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%T is taken", v)
				}
			}()
			parse(reflect.TypeOf(v))
		}()
	}
}
