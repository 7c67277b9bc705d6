package schedtest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// formatTokens prints tokens in the notation of scripts: letters as words, and three or
// more equal or ascending tokens abbreviated, as in 7*12 and 1..9.
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

// prefixWhile returns the length of the longest prefix of tokens for whose indices holds
// returns true.
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
