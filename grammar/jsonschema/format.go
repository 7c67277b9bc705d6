package jsonschema

import "strings"

// formats holds the patterns of the enforced formats. Each matches part of the texts that its
// standard allows and, except for the total length of a long host name, no others. The comments
// below name what is left out.
var formats = func() map[string]string {
	const (
		month31  = `(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])`
		month30  = `(?:0[469]|11)-(?:0[1-9]|[12]\d|30)`
		february = `02-(?:0[1-9]|1\d|2[0-8])`
		leap     = `(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29`
		date     = `(?:(?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})-(?:` + month31 + `|` + month30 + `|` + february + `)|` + leap + `)`

		hour = `(?:[01]\d|2[0-3])`
		// RFC 3339, without leap seconds.
		clock = hour + `:[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-]` + hour + `:[0-5]\d)`

		// RFC 3339, appendix A.
		seconds  = `\d{1,9}S`
		minutes  = `(?:\d{1,9}M(?:` + seconds + `)?)`
		hours    = `(?:\d{1,9}H` + minutes + `?)`
		timeSpan = `T(?:` + hours + `|` + minutes + `|` + seconds + `)`
		days     = `\d{1,9}D`
		months   = `(?:\d{1,9}M(?:` + days + `)?)`
		years    = `(?:\d{1,9}Y` + months + `?)`
		duration = `P(?:\d{1,9}W|(?:` + years + `|` + months + `|` + days + `)(?:` + timeSpan + `)?|` + timeSpan + `)`

		octet = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
		ipv4  = octet + `(?:\.` + octet + `){3}`

		// RFC 1123; at most 8 labels of 30, so that no name is over 253.
		label = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,28}[A-Za-z0-9])?`
		host  = label + `(?:\.` + label + `){0,7}`
		// RFC 5321, without quoted local parts and address literals.
		atom  = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
		email = atom + `(?:\.` + atom + `){0,2}@` + label + `(?:\.` + label + `){1,6}`

		// RFC 3986, without IP literals, and hosts without escapes and delimiters.
		char      = `(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})`
		userChar  = `(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})`
		name      = `[A-Za-z0-9._~-]`
		authority = `//(?:` + userChar + `*@)?` + name + `*(?::\d{0,5})?(?:/` + char + `*)*`
		hier      = `(?:` + authority + `|/(?:` + char + `+(?:/` + char + `*)*)?|` + char + `+(?:/` + char + `*)*)?`
		uri       = `[A-Za-z][A-Za-z0-9+.-]*:` + hier + `(?:\?(?:` + char + `|[/?])*)?(?:#(?:` + char + `|[/?])*)?`
	)
	all := map[string]string{
		"date":      date,
		"time":      clock,
		"date-time": date + `T` + clock,
		"duration":  duration,
		"uuid":      `[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}`,
		"ipv4":      ipv4,
		"ipv6":      ipv6(ipv4),
		"email":     email,
		"hostname":  host,
		"uri":       uri,
	}
	for name, p := range all {
		all[name] = `^(?:` + p + `)$`
	}
	return all
}()

// ipv6 returns the pattern of IPv6 addresses (RFC 4291, section 2.2): eight groups, of which the
// last two may be an IPv4 address, or fewer groups with one :: in place of the others. ipv4 is
// the pattern of an IPv4 address.
func ipv6(ipv4 string) string {
	const group = `[0-9A-Fa-f]{1,4}`
	groups := func(n int) string { // n groups, with colons between them
		if n == 0 {
			return ""
		}
		return group + strings.Repeat(`:`+group, n-1)
	}
	upTo := func(n int, last string) string { // up to n groups, each with a colon after it, then last
		return `(?:` + group + `:){0,` + string(rune('0'+n)) + `}` + last
	}
	ways := []string{
		groups(8),
		groups(6) + `:` + ipv4,
		`::`,
	}
	for before := 0; before <= 6; before++ {
		ways = append(ways, groups(before)+`::`+upTo(6-before, group))
		if before <= 5 {
			ways = append(ways, groups(before)+`::`+upTo(5-before, ipv4))
		}
	}
	ways = append(ways, groups(7)+`::`)
	for before := 1; before <= 6; before++ {
		ways = append(ways, groups(before)+`::`)
	}
	return strings.Join(ways, `|`)
}
