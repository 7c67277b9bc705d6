package schedtest

import "fmt"

// RunTwin runs one world twice and compares the digests step by step: a decision that depends
// on map order, an address or a clock shows as a difference. At every turn the second run also
// calls all read-only methods of the scheduler (Why, Explain, Timeline, Tenants, Metrics),
// which must change nothing. The report is that of the first run.
func RunTwin(o Options) (Report, error) {
	first, err := run(o, false)
	if err != nil {
		return first, err
	}
	second, err := run(o, true)
	if err != nil {
		return first, err
	}
	differ := func(step int, format string, args ...any) (Report, error) {
		return first, &Failure{Checker: "twin", Options: first.Options, Step: step, What: fmt.Sprintf(format, args...)}
	}
	for i := range min(len(first.Steps), len(second.Steps)) {
		if a, b := first.Steps[i], second.Steps[i]; a != b {
			return differ(i+1, "two runs differ from here on: %016x and %016x", a, b)
		}
	}
	if a, b := len(first.Steps), len(second.Steps); a != b {
		return differ(min(a, b), "one run has %d steps, the other %d", a, b)
	}
	if a, b := first.Digest, second.Digest; a != b {
		return differ(len(first.Steps), "two runs differ after the last step: %016x and %016x", a, b)
	}
	return first, nil
}
