package server

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/coppice-llm/coppice"
)

// startSpan begins the request's span, as a child of the caller's if the header names one.
// c.span stays nil if the span is not recorded.
func (c *call) startSpan() {
	if c.s.cfg.Tracer == nil {
		return
	}
	ctx := propagation.TraceContext{}.Extract(c.r.Context(), propagation.HeaderCarrier(c.r.Header))
	_, span := c.s.cfg.Tracer.Start(ctx, c.r.Method+" "+c.at.path, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.start),
		trace.WithAttributes(attribute.String("http.request.method", c.r.Method), attribute.String("http.route", c.at.path),
			attribute.String("coppice.request_id", c.id), attribute.String("gen_ai.request.model", c.s.cfg.Model)))
	if span.IsRecording() {
		c.span = span
	}
}

// trace adds the timeline of one choice to the span. Its times count from when the scheduler got
// the request, which is e.Total before now.
func (c *call) trace(prompt, sample int, e *coppice.Ending) {
	if c.span == nil {
		return
	}
	begin := time.Now().Add(-e.Total)
	for _, m := range e.Timeline {
		c.span.AddEvent(m.What.String(), trace.WithTimestamp(begin.Add(m.At)), trace.WithAttributes(
			attribute.Int("coppice.prompt", prompt), attribute.Int("coppice.sample", sample), attribute.Int("coppice.tokens", m.Tokens)))
	}
}

// endSpan ends the request's span.
func (c *call) endSpan(status int) {
	if c.span == nil {
		return
	}
	c.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if c.caller.tenant != "" {
		c.span.SetAttributes(attribute.String("coppice.tenant", c.caller.tenant))
	}
	if c.generates {
		c.span.SetAttributes(attribute.Int("gen_ai.usage.input_tokens", c.bill.promptTokens), attribute.Int("coppice.cached_tokens", c.bill.cachedTokens),
			attribute.Int("gen_ai.usage.output_tokens", c.bill.outputTokens), attribute.String("coppice.reason", c.bill.reason.String()))
	}
	switch {
	case c.gone != nil:
		c.span.SetStatus(codes.Error, "the client disconnected")
	case c.fault != nil:
		c.span.SetStatus(codes.Error, c.code())
	}
	c.span.End()
}
