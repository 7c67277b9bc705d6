package web

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// SitesConfig configures Sites. The zero value answers to IP addresses and localhost, and allows no
// page of another site.
type SitesConfig struct {
	// AnyHost answers to every host name. It is for servers that require keys: a page that
	// reaches the server by DNS rebinding has no key.
	AnyHost bool
	// AllowHosts lists host names to answer to, in addition to IP addresses and localhost:
	// "llm.example.com", or "*.example.com" for all names below that one, without ports.
	AllowHosts []string
	// Origins lists the origins of pages that may call from a browser, as
	// "https://app.example.com", or "*" for all. If it is empty, only the server's own page may.
	Origins []string
}

// Sites decides, by a SitesConfig, which requests a server answers.
type Sites struct {
	anyHost   bool
	hosts     map[string]bool // canonical host names
	below     []string        // suffixes such as ".example.com"
	anyOrigin bool
	origins   map[string]bool
	cross     *http.CrossOriginProtection
}

// NewSites returns the policy of cfg, or an error that lists all invalid hosts and origins.
func NewSites(cfg SitesConfig) (*Sites, error) {
	p := &Sites{anyHost: cfg.AnyHost, hosts: map[string]bool{"localhost": true}, origins: map[string]bool{}, cross: http.NewCrossOriginProtection()}
	var errs []error
	for _, name := range cfg.AllowHosts {
		under, wild := strings.CutPrefix(name, "*.")
		host := canonical(under)
		switch {
		case host == "" || strings.ContainsAny(host, " /*@:?#\\") && !isAddress(host):
			errs = append(errs, fmt.Errorf("sites: host %.100q, want a name like llm.example.com or *.example.com, without scheme and port", name))
		case wild:
			p.below = append(p.below, "."+host)
		default:
			p.hosts[host] = true
		}
	}
	for _, origin := range cfg.Origins {
		if origin == "*" {
			p.anyOrigin = true
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			errs = append(errs, fmt.Errorf("sites: origin %.100q, want one like https://app.example.com, without a path, or *", origin))
			continue
		}
		origin = originOf(u)
		p.origins[origin] = true
		p.cross.AddTrustedOrigin(origin) // can't fail: the origin was checked above
	}
	return p, errors.Join(errs...)
}

// originOf returns an origin as browsers write it: in lower case, without the scheme's default port.
func originOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if u.Scheme == "http" {
		host = strings.TrimSuffix(host, ":80")
	} else {
		host = strings.TrimSuffix(host, ":443")
	}
	return u.Scheme + "://" + host
}

// canonical returns host in the form in which hosts are compared: in lower case, without port,
// brackets and final dot. It returns "" if the port is invalid.
func canonical(host string) string {
	if h, port, err := net.SplitHostPort(host); err == nil {
		if strings.Trim(port, "0123456789") != "" {
			return ""
		}
		host = h
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// answersTo reports whether the server answers to requests with this Host header. A request
// without Host is allowed: it is HTTP/1.0 and not from a browser, which always sends Host.
// X-Forwarded-Host and similar headers are ignored, because any client can set them.
func (p *Sites) answersTo(host string) bool {
	if p.anyHost || host == "" {
		return true
	}
	name := canonical(host)
	if isAddress(name) || p.hosts[name] {
		return true
	}
	return slices.ContainsFunc(p.below, func(suffix string) bool { return len(name) > len(suffix) && strings.HasSuffix(name, suffix) })
}

// Check decides about request r: refusal is nil if r is allowed. Check adds the CORS headers to
// h, the response's header, that let pages of the allowed origins read the response. preflight
// reports that r is an allowed CORS preflight; answer it with status 204 and an empty body.
func (p *Sites) Check(h http.Header, r *http.Request) (preflight bool, refusal *Refusal) {
	if !p.answersTo(r.Host) {
		return false, &Refusal{http.StatusForbidden, "unknown_host", fmt.Sprintf("this server has no keys, so it answers only to IP addresses, localhost and its allowed hosts, and %.100q is none of these: "+
			"start it with --allow-host %.100s to allow that name", r.Host, canonical(r.Host))}
	}
	origin := r.Header.Get("Origin")
	allowed := origin != "" && (p.anyOrigin || p.origins[origin])
	if p.anyOrigin || len(p.origins) > 0 {
		h.Add("Vary", "Origin")
	}
	if allowed {
		p.share(h, origin)
	} else if p.cross.Check(r) != nil {
		return false, &Refusal{http.StatusForbidden, "cross_origin", fmt.Sprintf("a page of another site sent this request (Origin %.100q); only programs, this server's own page and pages allowed by --cors may", origin)}
	}
	method := r.Header.Get("Access-Control-Request-Method")
	if r.Method != http.MethodOptions || method == "" || origin == "" || !p.anyOrigin && len(p.origins) == 0 {
		return false, nil
	}
	if !allowed {
		return false, &Refusal{http.StatusForbidden, "cross_origin", fmt.Sprintf("pages of %.100q may not call this server: start it with --cors %.100s to allow them", origin, origin)}
	}
	p.invite(h, r, method)
	return true, nil
}

// CheckPlace decides about request r, which Check has allowed, if r takes one of a few places, as a
// stream does for a long time. Any page can make a browser send GET requests, with an <img> for example,
// though it can't read the answers. CheckPlace refuses these unless the page is the server's own or of an
// allowed origin. Browsers say where a request comes from in Sec-Fetch-Site; old ones, and programs, don't,
// and are allowed.
func (p *Sites) CheckPlace(r *http.Request) *Refusal {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	if site == "" || site == "same-origin" || site == "none" || origin != "" && (p.anyOrigin || p.origins[origin]) {
		return nil
	}
	return &Refusal{http.StatusForbidden, "cross_origin",
		"a page of another site sent this request; only programs, this server's own page and pages allowed by --cors may"}
}

// exposed lists the response headers that pages may read in addition to the default ones.
const exposed = "X-Request-Id, Retry-After, X-Coppice-Ignored, X-Coppice-Sampling-Defaults"

func (p *Sites) share(h http.Header, origin string) {
	if p.anyOrigin {
		origin = "*" // sufficient without credentials: pages send their keys in a header of their own
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", exposed)
}

// invite adds the headers that answer preflight r to h: they allow method and the headers that
// the page asks for. The request that follows is checked when it arrives.
func (p *Sites) invite(h http.Header, r *http.Request, method string) {
	if token(method) {
		h.Set("Access-Control-Allow-Methods", method)
	}
	var names []string
	for name := range strings.SplitSeq(r.Header.Get("Access-Control-Request-Headers"), ",") {
		if name = strings.TrimSpace(name); token(name) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		h.Set("Access-Control-Allow-Headers", strings.Join(names, ", "))
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	h.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
}

// token reports whether s is a token of HTTP (RFC 9110, section 5.6.2).
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
