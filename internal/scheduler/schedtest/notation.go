package schedtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/scheduler"
)

// parseTokens reads token sequences as scripts write them: see [Script].
func (s *Script) parseTokens(items []string) ([]kv.Token, error) {
	var all []kv.Token
	for _, item := range items {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		base, times := item, 1
		if i := strings.LastIndexByte(item, '*'); i >= 0 {
			n, err := strconv.Atoi(item[i+1:])
			if err != nil || n < 0 {
				return nil, fmt.Errorf("tokens %q: how often is %q?", item, item[i+1:])
			}
			base, times = item[:i], n
		}
		tokens, err := s.parseItem(base)
		if err != nil {
			return nil, err
		}
		for range times {
			all = append(all, tokens...)
		}
	}
	return all, nil
}

func (s *Script) parseItem(item string) ([]kv.Token, error) {
	if name, ok := strings.CutPrefix(item, "@"); ok {
		return s.parseReference(item, name)
	}
	if lo, hi, ok := strings.Cut(item, ".."); ok {
		a, err1 := strconv.ParseUint(lo, 10, 32)
		b, err2 := strconv.ParseUint(hi, 10, 32)
		if err1 != nil || err2 != nil || a > b || b-a > 1<<20 {
			return nil, fmt.Errorf("tokens %q: want a range like 0..19", item)
		}
		var tokens []kv.Token
		for t := a; t <= b; t++ {
			tokens = append(tokens, kv.Token(t))
		}
		return tokens, nil
	}
	if n, err := strconv.ParseUint(item, 10, 32); err == nil {
		return []kv.Token{kv.Token(n)}, nil
	}
	var tokens []kv.Token
	for _, c := range []byte(item) {
		if c < 'a' || c > 'z' {
			return nil, fmt.Errorf("tokens %q: want a number, a range, small letters or a reference", item)
		}
		tokens = append(tokens, kv.Token(c))
	}
	return tokens, nil
}

func (s *Script) parseReference(item, name string) ([]kv.Token, error) {
	name, cut, isCut := strings.Cut(name, ":")
	name, part, _ := strings.Cut(name, ".")
	id, err := strconv.ParseUint(name, 10, 64)
	o := s.orders[scheduler.RequestID(id)]
	if err != nil || o == nil {
		return nil, fmt.Errorf("tokens %q: there was no such request", item)
	}
	var tokens []kv.Token
	switch part {
	case "":
		tokens = slices.Concat(o.req.Prompt, o.samples[0].got)
	case "prompt":
		tokens = slices.Clone(o.req.Prompt)
	case "out":
		tokens = slices.Clone(o.samples[0].got)
	default:
		return nil, fmt.Errorf("tokens %q: want .prompt or .out", item)
	}
	if isCut {
		n, err := strconv.Atoi(cut)
		if err != nil || n < 0 || n > len(tokens) {
			return nil, fmt.Errorf("tokens %q: want a cut from 0 to %d", item, len(tokens))
		}
		tokens = tokens[:n]
	}
	return tokens, nil
}

// formatTokens writes tokens in the notation of scripts: letters as words, runs
// and ranges of three or more in short.
func formatTokens(tokens []kv.Token) string {
	var items []string
	for i := 0; i < len(tokens); {
		rest := tokens[i:]
		run := prefixWhile(rest, func(k int) bool { return rest[k] == rest[0] })
		climb := prefixWhile(rest, func(k int) bool { return rest[k] == rest[0]+kv.Token(k) })
		word := prefixWhile(rest, func(k int) bool { return isLetter(rest[k]) })
		switch {
		case run > 2:
			items = append(items, fmt.Sprintf("%s*%d", formatToken(rest[0]), run))
			i += run
		case word > 0:
			var letters strings.Builder
			for _, t := range rest[:word] {
				letters.WriteString(formatToken(t))
			}
			items = append(items, letters.String())
			i += word
		case climb > 2:
			items = append(items, fmt.Sprintf("%d..%d", rest[0], rest[climb-1]))
			i += climb
		default:
			items = append(items, formatToken(rest[0]))
			i++
		}
	}
	return strings.Join(items, ", ")
}

// prefixWhile is how many tokens from the first on satisfy a condition.
func prefixWhile(tokens []kv.Token, holds func(k int) bool) int {
	n := 0
	for n < len(tokens) && holds(n) {
		n++
	}
	return n
}

func isLetter(t kv.Token) bool { return t >= 'a' && t <= 'z' }

func formatToken(t kv.Token) string {
	if isLetter(t) {
		return string(rune(t))
	}
	return strconv.FormatUint(uint64(t), 10)
}
