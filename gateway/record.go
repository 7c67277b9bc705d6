package gateway

import (
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/coppice-llm/coppice/gateway/fleetview"
)

// ended updates the metrics and writes a log line for a finished request.
func (p *proxiedRequest) ended(r *http.Request) {
	m := p.g.metrics
	worker := ""
	if p.member != nil {
		worker = p.member.Name()
		m.Prompts.Add(float64(p.blocks))
		p.confirm()
		if p.inexact {
			m.Inexact.Inc()
		}
		m.Overhead.WithLabelValues("read").Observe(p.took.read.Seconds())
		m.Overhead.WithLabelValues("hash").Observe(p.took.hash.Seconds())
		m.Overhead.WithLabelValues("choose").Observe(p.took.choose.Seconds())
	}
	if pool := p.poolName(); pool != "" {
		m.Pooled.WithLabelValues(pool).Inc()
	}
	status := p.status
	if r.Context().Err() != nil && status < 400 && !p.answer.done {
		status = statusGone
	}
	total := time.Since(p.start)
	m.Requests.WithLabelValues(worker, strconv.Itoa(status)).Inc()
	m.Whole.Observe(total.Seconds())
	p.record(worker, status, total)
	if p.member != nil && p.member.Gone() {
		p.g.members.Forget(worker) // the worker left before this request ended: remove its series and sums again
	}
	line := p.g.log.Check(zap.InfoLevel, "request")
	if line == nil {
		return
	}
	fields := append(make([]zap.Field, 0, 12), zap.String("request", r.Header.Get("X-Request-Id")), zap.String("path", r.URL.Path), zap.Int("status", status),
		zap.Duration("total", total), zap.String("worker", worker), zap.Int("attempts", p.attempts),
		zap.Int("prompt_blocks", p.blocks), zap.Int("overlap_blocks", p.decision.Overlap.Blocks()), zap.Duration("choose", p.took.choose))
	if pool := p.poolName(); pool != "" {
		fields = append(fields, zap.String("pool", pool))
	}
	if p.fault != nil {
		fields = append(fields, zap.Error(p.fault))
	}
	line.Write(fields...)
}

// confirm compares the predicted overlap with the number of cached tokens in the answer's usage.
// A worker always computes at least one prompt token, so a prompt that is fully cached reports
// one cached token less than it has; the + 1 makes up for it. An outdated index is corrected by the
// answer.
func (p *proxiedRequest) confirm() {
	m := p.g.metrics
	if p.blocks == 0 {
		return
	}
	u := &p.answer.usage
	if !u.reported {
		m.Untold.Inc()
		return
	}
	cached, predicted := min(p.blocks, (u.cached+1)/p.g.dispatch.BlockTokens()), min(p.blocks, p.decision.Overlap.Blocks())
	m.Overlaps.Add(float64(cached))
	m.Over.Add(float64(max(0, predicted-cached)))
	if cached < len(p.doubted) {
		p.g.dispatch.Correct(p.decision.Worker, p.doubted[cached:])
	}
	m.Under.Add(float64(max(0, cached-predicted)))
}

// record adds a finished request to the live page. total is its duration in the gateway.
func (p *proxiedRequest) record(worker string, status int, total time.Duration) {
	tokens := func(blocks int) int { return min(p.promptTokens, blocks*p.g.dispatch.BlockTokens()) }
	r := fleetview.Routed{
		Model: p.model, Worker: worker, Status: status, Attempts: p.attempts, PromptTokens: p.promptTokens,
		TotalMillis: total.Seconds() * 1e3, Ended: p.start.Add(total),
	}
	if p.member != nil {
		r.Reason, r.PredictedTokens = p.decision.Reason.String(), tokens(p.decision.Overlap.Blocks())
	}
	if u := &p.answer.usage; u.reported {
		r.CachedTokens = new(min(u.cached, p.promptTokens))
	}
	if at := p.answer.firstAt; !at.IsZero() {
		r.TTFTMillis = new(at.Sub(p.start).Seconds() * 1e3)
	}
	if p.fault != nil && status >= 400 {
		r.Error = p.fault.Error()
	}
	p.g.metrics.recent.Add(r)
}
