package prefixbreak

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a text around the place where two prompts part, in bytes.
const (
	maxSpan = 96 // of a differing text that is shown
	around  = 24 // bytes on both sides that may be part of a time
)

var (
	// times are texts of dates and of times of the day.
	times = regexp.MustCompile(`\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?|` +
		`(?i:\b(mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b[ ,.]+\d{1,4}|\d{1,2}(st|nd|rd|th)?[ .]+(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b|\b(mon|tues|wednes|thurs|fri|satur|sun)day\b)`)
	// epoch is a number of seconds or milliseconds since 1970, from 2001 to 2065.
	epoch = regexp.MustCompile(`^[12]\d{9}(\d{3})?(\.\d+)?$`)
	uuid  = regexp.MustCompile(`^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`)
)

// parted returns what two texts have at the place where they first differ: the word around it in each. A word is
// what stands between spaces, quotes and separators. same is what both have before the words.
func parted(old, new string) (was, is string, cause Cause) {
	at := 0
	for at < min(len(old), len(new)) && old[at] == new[at] {
		at++
	}
	from := at
	for from > 0 {
		r, n := utf8.DecodeLastRuneInString(old[:from])
		if !wordRune(r) {
			break
		}
		from -= n
	}
	was, is = wordAt(old, from), wordAt(new, from)
	switch {
	case timely(old, from, at) && timely(new, from, at), epoch.MatchString(was) && epoch.MatchString(is):
		cause = Timestamp
	case random(was) && random(is):
		cause = Nonce
	}
	return clip(was), clip(is), cause
}

// wordRune reports whether r may be within an identifier, a number or a time.
func wordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_+/.:~", r)
}

// wordAt returns the word that begins at from, without punctuation at its end.
func wordAt(s string, from int) string {
	end := strings.IndexFunc(s[from:], func(r rune) bool { return !wordRune(r) })
	if end < 0 {
		end = len(s) - from
	}
	return strings.TrimRight(s[from:from+end], ".:/-")
}

// timely reports whether a date or a time of the day covers or touches the bytes [from, at] of s.
func timely(s string, from, at int) bool {
	lo, hi := max(from-around, 0), min(at+around, len(s))
	for _, m := range times.FindAllStringIndex(s[lo:hi], -1) {
		if lo+m[0] <= at && at <= lo+m[1] {
			return true
		}
	}
	return false
}

// random reports whether a word looks like a number that is made anew each time: a UUID, hexadecimal digits, base64,
// or a long decimal number.
func random(s string) bool {
	if uuid.MatchString(s) {
		return true
	}
	if i := strings.LastIndexAny(s, ":/"); i >= 0 { // a name before it, as in "id:…"
		s = s[i+1:]
	}
	digits, letters, changes, wasDigit := 0, 0, 0, false
	for i, r := range s {
		digit := unicode.IsDigit(r)
		switch {
		case digit:
			digits++
		case unicode.IsLetter(r):
			letters++
		}
		if i > 0 && digit != wasDigit {
			changes++
		}
		wasDigit = digit
	}
	switch {
	case letters == 0:
		return digits >= 5
	case digits+letters >= 16:
		return digits > 0 || mixedCase(s)
	default:
		return digits+letters >= 4 && digits > 0 && changes >= 1
	}
}

// mixedCase reports whether s has capitals after small letters, as base64 has and few words have.
func mixedCase(s string) bool {
	small := false
	for _, r := range s {
		if small && unicode.IsUpper(r) {
			return true
		}
		small = unicode.IsLower(r)
	}
	return false
}

// clip shortens a text that is shown.
func clip(s string) string {
	if len(s) > maxSpan {
		return strings.ToValidUTF8(s[:maxSpan], "") + "…"
	}
	return s
}
