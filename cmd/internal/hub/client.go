package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coppice-llm/coppice/internal/terminal"
)

// Errors of a hub's responses; each names a remedy.
var (
	// ErrDenied is wrapped if the hub requires a token, or one with more rights.
	ErrDenied = errors.New("hub: not allowed")
	// ErrMissing is wrapped if there is no such model, revision or file.
	ErrMissing = errors.New("hub: not there")
	// ErrAnswer is wrapped if the hub's response is invalid, or if all attempts fail.
	ErrAnswer = errors.New("hub: bad answer")
)

// newClient makes the client for requests to the hub.
func (h *Hub) newClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = h.cfg.Stall
	t.DisableCompression = true // sizes and hashes are those of the bytes as stored
	return &http.Client{Transport: t, CheckRedirect: h.follow}
}

// Close closes idle connections.
func (h *Hub) Close() { h.http.CloseIdleConnections() }

const maxRedirects = 10

// errStalled ends a request that delivers no bytes.
var errStalled = errors.New("hub: no byte came for too long")

// watched returns a context for one request, which ends with errStalled if alive is not called for
// Config.Stall. The caller calls stop at the end.
func (h *Hub) watched(ctx context.Context) (watched context.Context, alive, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stall := time.AfterFunc(h.cfg.Stall, func() { cancel(errStalled) })
	return ctx, func() { stall.Reset(h.cfg.Stall) }, func() { stall.Stop(); cancel(nil) }
}

// get requests address. If from is above 0, it requests only the bytes from that offset on. The
// caller closes the body. get does not check the response's status.
func (h *Hub) get(ctx context.Context, address string, from int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "coppice")
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	h.authorise(req)
	resp, err := h.http.Do(req)
	return resp, hidden(err)
}

// authorise adds the token to requests to the endpoint and to no others: a hub redirects downloads
// to other hosts, by URLs that carry their own authorisation.
func (h *Hub) authorise(req *http.Request) {
	req.Header.Del("Authorization")
	home, err := url.Parse(h.cfg.Endpoint)
	if h.cfg.Token != "" && err == nil && req.URL.Scheme == home.Scheme && req.URL.Host == home.Host {
		req.Header.Set("Authorization", "Bearer "+h.cfg.Token)
	}
}

// follow checks and prepares req, the request to which the last one of via was redirected.
func (h *Hub) follow(req *http.Request, via []*http.Request) error {
	from, to := via[len(via)-1].URL, req.URL.Scheme
	if len(via) >= maxRedirects {
		return fmt.Errorf("%w: more than %d redirects", ErrAnswer, maxRedirects)
	}
	if to != "https" && (to != "http" || from.Scheme != "http") {
		return fmt.Errorf("%w: %s redirects to where it may not", ErrAnswer, from.Host)
	}
	req.Header.Del("Referer") // may hold a signature
	h.authorise(req)
	return nil
}

// hidden returns err without the query of its URL, which may hold a signature.
func hidden(err error) error {
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		at, _, _ := strings.Cut(failed.URL, "?")
		return fmt.Errorf("hub: %s %s: %w", failed.Op, at, failed.Err)
	}
	return err
}

// refusal is a response with a status other than success.
type refusal struct {
	err   error
	again bool          // whether another attempt may succeed
	after time.Duration // least time until another attempt, from Retry-After
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// refused returns a refusal for a response with an error status, or nil for success. It reads the
// body of a refused request for a message.
func (h *Hub) refused(resp *http.Response, repo string) error {
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
		return nil
	}
	code, says := resp.Header.Get("X-Error-Code"), resp.Header.Get("X-Error-Message")
	if says == "" {
		says = message(resp.Body)
	}
	said := func(kind error, format string, args ...any) error {
		text := fmt.Sprintf(format, args...)
		if says != "" {
			text += " (the hub says " + terminal.Quote(says) + ")"
		}
		return fmt.Errorf("%w: %s", kind, text)
	}
	page := h.cfg.Endpoint + "/" + repo
	switch status := resp.StatusCode; {
	case code == "GatedRepo" || status == http.StatusForbidden:
		return &refusal{err: said(ErrDenied, "%s: accept its conditions at %s, and give a token that may read it in HF_TOKEN", repo, page)}
	case code == "RevisionNotFound":
		return &refusal{err: said(ErrMissing, "%s has no such revision; see %s", repo, page)}
	case code == "EntryNotFound":
		return &refusal{err: said(ErrMissing, "%s has no such file; see %s", repo, page)}
	case status == http.StatusUnauthorized && h.cfg.Token != "":
		return &refusal{err: said(ErrDenied, "%s: there is no such model, or the token in HF_TOKEN may not read it", repo)}
	case status == http.StatusUnauthorized:
		return &refusal{err: said(ErrDenied, "%s: there is no such model, or it is not public; HF_TOKEN takes a token", repo)}
	case status == http.StatusNotFound:
		return &refusal{err: said(ErrMissing, "%s: there is no such model at %s", repo, h.cfg.Endpoint)}
	case status == http.StatusTooManyRequests:
		return &refusal{said(ErrAnswer, "status 429: too many requests; HF_TOKEN raises the limit"), true, retryAfter(resp)}
	case status >= 500 || status == http.StatusRequestTimeout:
		return &refusal{said(ErrAnswer, "status %d", status), true, retryAfter(resp)}
	default:
		return &refusal{err: said(ErrAnswer, "status %d", status)}
	}
}

// message returns the text of an error response's body.
func message(body io.Reader) string {
	data, _ := io.ReadAll(io.LimitReader(body, 4096))
	var said struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(data, &said) == nil && said.Error != "" {
		return said.Error
	}
	if text := strings.TrimSpace(string(data)); !strings.HasPrefix(text, "<") {
		return text
	}
	return ""
}

func retryAfter(resp *http.Response) time.Duration {
	n, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxWait)
}

// retry calls try until it succeeds, fails permanently, or has failed for a temporary reason
// Config.Attempts times in a row without progress. It waits between the attempts, at first for
// Config.Wait, then each time twice as long up to maxWait, but at least as long as the error
// requests. It returns the cause of ctx if ctx ends.
func (h *Hub) retry(ctx context.Context, try func() (progress bool, err error)) error {
	for n := 0; ; n++ {
		progress, err := try()
		if progress {
			n = 0
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !passes(err):
			return err
		case n+1 >= h.cfg.Attempts:
			return fmt.Errorf("%w: given up after %d attempts; what is there is kept, pull again to go on: %w", ErrAnswer, n+1, err)
		}
		wait := min(h.cfg.Wait<<min(n, 16), maxWait)
		if r := (*refusal)(nil); errors.As(err, &r) {
			wait = max(wait, r.after)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}
