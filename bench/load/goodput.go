package load

import (
	"fmt"
	"strings"
	"time"
)

// Objectives are upper limits for the latencies of a request (SLOs). A request that
// meets all of them counts for goodput. 0 means no limit. Source of the term: DistServe,
// Zhong et al., OSDI 2024.
type Objectives struct {
	TTFT time.Duration
	TPOT time.Duration
	ITL  time.Duration // for every single gap
	E2EL time.Duration
}

// UnmarshalText parses a list such as ttft:200ms,itl:50ms.
func (o *Objectives) UnmarshalText(text []byte) error {
	*o = Objectives{}
	for _, part := range strings.Split(string(text), ",") {
		name, limit, _ := strings.Cut(strings.TrimSpace(part), ":")
		field, known := map[string]*time.Duration{"ttft": &o.TTFT, "tpot": &o.TPOT, "itl": &o.ITL, "e2el": &o.E2EL}[name]
		d, err := time.ParseDuration(limit)
		if !known || err != nil || d <= 0 || *field != 0 {
			return fmt.Errorf("load: objective %q, want each of ttft, tpot, itl and e2el at most once, as ttft:200ms,itl:50ms", part)
		}
		*field = d
	}
	return nil
}

// String returns the list in the format of UnmarshalText.
func (o Objectives) String() string {
	var parts []string
	for _, f := range []struct {
		name  string
		limit time.Duration
	}{{"ttft", o.TTFT}, {"tpot", o.TPOT}, {"itl", o.ITL}, {"e2el", o.E2EL}} {
		if f.limit > 0 {
			parts = append(parts, f.name+":"+f.limit.String())
		}
	}
	return strings.Join(parts, ",")
}

// kept reports whether s, a request that did not fail, met all objectives.
func (o *Objectives) kept(s *sample) bool {
	tpot, _ := s.tpot()
	if over(s.ttft, o.TTFT) || over(tpot, o.TPOT) || over(s.e2el, o.E2EL) {
		return false
	}
	for _, gap := range s.gaps {
		if over(gap, o.ITL) {
			return false
		}
	}
	return true
}

// over reports whether d exceeds a limit; 0 is no limit.
func over(d, limit time.Duration) bool { return limit > 0 && d > limit }
