package view

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"
)

// MarshalJSON is the number, or null.
func (f Figure) MarshalJSON() ([]byte, error) { return f.append(nil), nil }

// UnmarshalJSON takes what MarshalJSON gives.
func (f *Figure) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		*f = Figure(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(f))
}

// Known tells that f is a number.
func (f Figure) Known() bool { return !math.IsNaN(float64(f)) }

func (f Figure) append(dst []byte) []byte {
	if !f.Known() || math.IsInf(float64(f), 0) {
		return append(dst, "null"...)
	}
	return strconv.AppendFloat(dst, float64(f), 'f', -1, 64)
}

// appendJSON writes s as encoding/json does, but the tree and the history, which are
// nearly all of it, without reflection. The redacted one lacks what redact takes out.
func (s *Snapshot) appendJSON(dst []byte, redacted bool) ([]byte, error) {
	small := *s
	if redacted {
		small.redact()
	}
	for _, part := range []struct {
		name  string
		value any
	}{
		{`{"schema":`, small.Schema},
		{`,"at_ms":`, small.AtMillis},
		{`,"server":`, &small.Server},
		{`,"pool":`, &small.Pool},
		{`,"totals":`, &small.Totals},
		{`,"now":`, &small.Now},
		{`,"running":`, small.Running},
		{`,"waiting":`, small.Waiting},
		{`,"finished":`, small.Finished},
		{`,"tenants":`, small.Tenants},
	} {
		text, err := json.Marshal(part.value)
		if err != nil {
			return dst, err
		}
		dst = append(append(dst, part.name...), text...)
	}
	dst = s.History.append(append(dst, `,"history":`...))
	dst = s.Tree.append(append(dst, `,"tree":`...), redacted)
	if s.Curve != nil {
		text, err := json.Marshal(s.Curve)
		if err != nil {
			return dst, err
		}
		dst = append(append(dst, `,"curve":`...), text...)
	}
	return append(dst, '}'), nil
}

// redact takes out what tells of single requests: whose they are, and how long their prompts.
// Those of the tree are taken out as it is written. Counts and totals of all stay.
func (s *Snapshot) redact() {
	s.Server.Redacted = true
	s.Tenants, s.Running, s.Waiting, s.Finished = []TenantLoad{}, []Running{}, []Waiting{}, []Finished{}
}

func (h *History) append(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"period_ms":`...), h.PeriodMillis, 10)
	dst = strconv.AppendInt(append(dst, `,"window_ms":`...), h.WindowMillis, 10)
	dst = appendList(append(dst, `,"at_ms":`...), h.AtMillis, appendInt)
	for _, column := range []struct {
		name   string
		values []Figure
	}{
		{`,"hit_rate":`, h.HitRate},
		{`,"ttft_p50_ms":`, h.TTFTp50Millis}, {`,"ttft_p99_ms":`, h.TTFTp99Millis},
		{`,"itl_p50_ms":`, h.ITLp50Millis}, {`,"itl_p99_ms":`, h.ITLp99Millis},
		{`,"prompt_tokens_s":`, h.PromptRate}, {`,"cached_tokens_s":`, h.CachedRate}, {`,"output_tokens_s":`, h.OutputRate},
	} {
		dst = appendList(append(dst, column.name...), column.values, func(dst []byte, f Figure) []byte { return f.append(dst) })
	}
	dst = appendList(append(dst, `,"running":`...), h.Running, appendInt)
	dst = appendList(append(dst, `,"waiting":`...), h.Waiting, appendInt)
	dst = appendList(append(dst, `,"used_pages":`...), h.UsedPages, appendInt)
	return append(dst, '}')
}

func (t *Tree) append(dst []byte, redacted bool) []byte {
	for _, count := range []struct {
		name  string
		value int
	}{
		{`{"nodes":`, t.Nodes}, {`,"leaves":`, t.Leaves}, {`,"tokens":`, t.Tokens}, {`,"pages":`, t.Pages},
		{`,"namespaces":`, t.Namespaces}, {`,"hidden":`, t.Hidden},
	} {
		dst = appendInt(append(dst, count.name...), count.value)
	}
	dst = append(dst, `,"shown":[`...)
	for i := range t.Shown {
		if redacted { // each is a part of somebody's prompt
			break
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = t.Shown[i].append(dst)
	}
	return append(dst, "]}"...)
}

func (n *Node) append(dst []byte) []byte {
	dst = appendInt(append(dst, `{"id":`...), n.ID)
	dst = appendInt(append(dst, `,"parent":`...), n.Parent)
	dst = appendInt(append(dst, `,"space":`...), n.Space)
	dst = appendInt(append(dst, `,"start":`...), n.Start)
	dst = appendInt(append(dst, `,"tokens":`...), n.Tokens)
	dst = appendInt(append(dst, `,"pages":`...), n.Pages)
	dst = appendInt(append(dst, `,"hits":`...), n.Hits)
	dst = appendInt(append(dst, `,"reuses":`...), n.Reuses)
	dst = strconv.AppendFloat(append(dst, `,"heat":`...), n.Heat, 'f', -1, 64)
	dst = appendInt(append(dst, `,"pins":`...), n.Pins)
	if n.Tail {
		dst = append(dst, `,"tail":true`...)
	}
	if n.More > 0 {
		dst = appendInt(append(dst, `,"more":`...), n.More)
	}
	if n.Text != "" {
		dst = appendString(append(dst, `,"text":`...), n.Text)
	}
	if n.TextTotal {
		dst = append(dst, `,"text_total":true`...)
	}
	return append(dst, '}')
}

func appendList[T any](dst []byte, list []T, item func([]byte, T) []byte) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = item(dst, v)
	}
	return append(dst, ']')
}

func appendInt[T int | int64 | uint32 | uint64](dst []byte, n T) []byte {
	return strconv.AppendInt(dst, int64(n), 10)
}

const hexDigits = "0123456789abcdef"

// appendString escapes as encoding/json does, so that the text may stand in HTML too.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r >= utf8.RuneSelf && (r != utf8.RuneError || size > 1) && r != '\u2028' && r != '\u2029' {
			i += size
			continue
		}
		dst = append(dst, s[from:i]...)
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\b':
			dst = append(dst, '\\', 'b')
		case c == '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
		}
		i += size
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}
