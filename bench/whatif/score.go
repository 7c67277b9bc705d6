package whatif

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/bench"
	"github.com/coppice-llm/coppice/router"
	"github.com/coppice-llm/coppice/router/decisions"
)

// Config says which policies to score.
type Config struct {
	Policies []router.Policy // default: all
	// Weights of the policies. Zero: those of the recording.
	Weights router.Weights
	Seed    uint64 // of random choices
}

// Table holds the scores.
type Table struct {
	Policy   string   `json:"recorded_policy"`
	Workers  int      `json:"workers"`
	Recorded int      `json:"decisions"` // all that were recorded
	Speed    Speed    `json:"speed"`
	Measured Result   `json:"measured"` // what the recording says itself; Regrets are not known
	Model    Result   `json:"model"`    // the recorded choices, under the model
	Error    float64  `json:"model_error"`
	Policies []Result `json:"policies"`
}

// Result is the score of a policy, over the requests that were answered.
type Result struct {
	Policy     string  `json:"policy"`
	Requests   int     `json:"requests"`
	HitRate    float64 `json:"hit_rate"` // cached prompt tokens over prompt tokens
	TTFTMean   float64 `json:"ttft_ms_mean"`
	TTFTp50    float64 `json:"ttft_ms_p50"`
	TTFTp99    float64 `json:"ttft_ms_p99"`
	RegretMean float64 `json:"regret_ms_mean"`
	RegretP99  float64 `json:"regret_ms_p99"`
	Others     float64 `json:"other_choices"` // share of the requests that go to another worker than recorded
	// Regrets are those of each choice, in the order of the recorded choices.
	Regrets []Regret `json:"regrets,omitempty"`
}

// Regret is the loss of one choice.
type Regret struct {
	At      float64 `json:"at_s"` // of the recorded choice
	Worker  string  `json:"worker"`
	TTFT    float64 `json:"ttft_ms"`
	Regret  float64 `json:"regret_ms"`
	Tokens  int     `json:"prompt_tokens"`
	Attempt int     `json:"attempt"`
}

// Score scores policies on a recording. Errors are those of the configuration, a recording with too few answers to learn the
// workers' speed from, and the end of ctx.
func Score(ctx context.Context, cfg Config, rec *decisions.Recording) (*Table, error) {
	if len(cfg.Policies) == 0 {
		cfg.Policies = router.Policies()
	}
	if cfg.Weights == (router.Weights{}) {
		cfg.Weights = rec.Head.Weights
	}
	served := answered(rec)
	speed, err := fit(rec, served)
	if err != nil {
		return nil, err
	}
	for i := range served {
		served[i].guessOutput(&speed)
	}
	t := &Table{Policy: rec.Head.Policy, Workers: len(rec.Workers), Recorded: len(rec.Decisions), Speed: speed, Measured: measured(served)}
	score := func(name string, policy router.Policy, pinned bool) (*play, Result, error) {
		p, err := newPlay(rec, served, speed, policy, cfg.Weights, cfg.Seed)
		if err != nil {
			return nil, Result{}, err
		}
		p.pinned = pinned
		if err := p.run(ctx); err != nil {
			return nil, Result{}, err
		}
		return p, p.result(name), nil
	}
	p, r, err := score("recorded choices", router.CostLatency, true)
	if err != nil {
		return nil, err
	}
	t.Model, t.Error = r, p.deviation()
	for _, policy := range cfg.Policies {
		_, r, err := score(policy.String(), policy, false)
		if err != nil {
			return nil, err
		}
		t.Policies = append(t.Policies, r)
	}
	return t, nil
}

// answered returns the requests that a worker answered, by their arrival.
func answered(rec *decisions.Recording) (served []request) {
	for i := range rec.Decisions {
		d := &rec.Decisions[i]
		if d.Outcome != decisions.Answered || d.Status >= 400 && d.Status != 499 {
			continue
		}
		q := request{decision: d, arrived: max(0, d.At-d.Waited), output: d.OutputTokens}
		if d.Cached != nil {
			q.cached = *d.Cached
		} else if c := chosen(d); c != nil {
			q.cached = c.CachedBlocks() * rec.Head.BlockTokens
		}
		q.cached = min(max(0, q.cached), d.PromptTokens)
		served = append(served, q)
	}
	slices.SortStableFunc(served, func(a, b request) int { return cmp.Compare(a.arrived, b.arrived) })
	return served
}

// guessOutput sets the output tokens of an answer that was no stream, by how long it took.
func (q *request) guessOutput(s *Speed) {
	d := q.decision
	if q.output = max(1, q.output); d.TTFT > 0 || s.Decode == 0 {
		return
	}
	running := 0
	if c := chosen(d); c != nil {
		running = c.Requests - c.Prefilling
	}
	rest := (d.Total - s.prompt(d.PromptTokens-q.cached, running)).Seconds()
	q.output = max(1, int(math.Round(min(rest/(s.Decode+s.DecodeRunning*float64(running)), router.MaxPromptTokens))))
}

// measured sums up what the recording says itself.
func measured(served []request) Result {
	r := Result{Policy: "measured", Requests: len(served)}
	var ttft []time.Duration
	cached, prompt := 0, 0
	for i := range served {
		q := &served[i]
		cached, prompt = cached+q.cached, prompt+q.decision.PromptTokens
		if q.decision.TTFT > 0 {
			ttft = append(ttft, q.decision.TTFT+q.decision.At-q.arrived)
		}
	}
	r.times(ttft)
	r.HitRate = float64(cached) / float64(max(1, prompt))
	return r
}

// times sets the figures of times to first tokens.
func (r *Result) times(ttft []time.Duration) {
	r.TTFTMean, r.TTFTp50, r.TTFTp99 = mean(ttft), bench.Percentile(ttft, 50), bench.Percentile(ttft, 99)
}

func mean(all []time.Duration) float64 {
	sum := 0.0
	for _, d := range all {
		sum += ms(d)
	}
	return sum / float64(max(1, len(all)))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// result sums up a run.
func (p *play) result(name string) Result {
	r := Result{Policy: name, Requests: len(p.served)}
	var ttft, regrets []time.Duration
	prompt, others := 0, 0
	for i, o := range p.outcome {
		d := p.served[i].decision
		ttft, regrets, prompt = append(ttft, o.ttft), append(regrets, o.regret), prompt+d.PromptTokens
		if o.worker != d.Chosen {
			others++
		}
		r.Regrets = append(r.Regrets, Regret{
			At: d.At.Seconds(), Worker: p.rec.Workers[o.worker].Name, TTFT: ms(o.ttft), Regret: ms(o.regret), Tokens: d.PromptTokens, Attempt: d.Attempt,
		})
	}
	r.times(ttft)
	r.RegretMean, r.RegretP99 = mean(regrets), bench.Percentile(regrets, 99)
	n := float64(max(1, len(p.outcome)))
	r.HitRate, r.Others = float64(p.hits)/float64(max(1, prompt)), float64(others)/n
	return r
}

// deviation returns the median over the requests of |model − measured| / measured, of times to first tokens under the recorded
// choices.
func (p *play) deviation() float64 {
	var all []float64
	for i, o := range p.outcome {
		q := &p.served[i]
		if real := q.decision.TTFT + q.decision.At - q.arrived; q.decision.TTFT > 0 {
			all = append(all, math.Abs(float64(o.ttft-real))/float64(real))
		}
	}
	slices.Sort(all)
	return all[len(all)/2] // fit has found some
}

// Rows returns a row for what was measured, one for the recorded choices under the model, and one for each policy.
func (t *Table) Rows() (rows [][]string, legend string) {
	rows = [][]string{{"policy", "hit rate", "TTFT mean", "TTFT p50", "TTFT p99", "regret mean", "regret p99", "other choices"}}
	for i, r := range append([]Result{t.Measured, t.Model}, t.Policies...) {
		row := []string{r.Policy, fmt.Sprintf("%.1f %%", 100*r.HitRate), bench.Milliseconds(r.TTFTMean), bench.Milliseconds(r.TTFTp50), bench.Milliseconds(r.TTFTp99)}
		if i == 0 {
			row = append(row, "", "", "")
		} else {
			row = append(row, bench.Milliseconds(r.RegretMean), bench.Milliseconds(r.RegretP99), fmt.Sprintf("%.0f %%", 100*r.Others))
		}
		rows = append(rows, row)
	}
	return rows, t.legend()
}

func (t *Table) legend() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d decisions were answered, at %d workers under policy %s. measured: what the recording says itself.\n", t.Measured.Requests, t.Recorded, t.Workers, t.Policy)
	fmt.Fprintf(&b, "All other rows are by a model of the workers, fitted to the recording: a prompt takes %.4g ms, %.4g ms more for each 1000 tokens that\n", 1e3*t.Speed.Base, 1e6*t.Speed.Token)
	fmt.Fprintf(&b, "are not cached, and %.4g ms for each request that decodes; an output token takes %.4g ms, and %.4g ms more for each of them. Half of the\n",
		1e3*t.Speed.Running, 1e3*t.Speed.Decode, 1e3*t.Speed.DecodeRunning)
	fmt.Fprintf(&b, "recorded choices have a TTFT within %.0f %% of the model's. TTFT: from a request's arrival at the router to its first token. regret: the\n", 100*t.Error)
	b.WriteString("TTFT at the chosen worker minus that at the best one, given the caches and queues that the policy's earlier choices made. other\n")
	b.WriteString("choices: requests that go to another worker than recorded.")
	return b.String()
}

// Each is a table of all choices: the TTFT and the regret of each under the model, for the recorded choices and for each policy.
type Each struct{ *Table }

// Each returns the table of all choices.
func (t *Table) Each() Each { return Each{t} }

// Rows returns a row for each choice, in the order of the recorded ones.
func (e Each) Rows() (rows [][]string, legend string) {
	results := append([]Result{e.Model}, e.Policies...)
	head := []string{"at", "prompt tokens"}
	for _, r := range results {
		head = append(head, r.Policy, "TTFT", "regret")
	}
	rows = append(rows, head)
	for i, first := range e.Model.Regrets {
		row := []string{fmt.Sprintf("%.3f s", first.At), fmt.Sprint(first.Tokens)}
		for _, r := range results {
			row = append(row, r.Regrets[i].Worker, bench.Milliseconds(r.Regrets[i].TTFT), bench.Milliseconds(r.Regrets[i].Regret))
		}
		rows = append(rows, row)
	}
	return rows, e.legend()
}
