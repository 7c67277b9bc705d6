package zmq

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/eventstest"
)

// TestSlowSubscriber: a subscriber that reads nothing does not affect the others, and costs no
// memory beyond its queue.
func TestSlowSubscriber(t *testing.T) {
	p, s := publisher(t, events.PublisherConfig{Heartbeat: time.Millisecond}, SenderConfig{QueueMessages: 4, QueueBytes: 1 << 20})
	nc, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	stuck, err := handshake(nc, "SUB", 1<<20, time.Minute, "PUB")
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	if err := errors.Join(stuck.write([]byte{1}), stuck.w.Flush()); err != nil {
		t.Fatal(err)
	}
	c, sink := eventstest.NewCache(), eventstest.NewSet()
	follow(t, sink, SourceConfig{Endpoint: endpoint(s.Addr()), ReplayEndpoint: endpoint(s.ReplayAddr())}, events.SubscriberConfig{})
	for s.dropped.Load() == 0 {
		for range 100 {
			p.Publish(c.Step(4))
		}
		sink.Until(c.Held)
	}
}

// TestHostilePeers: invalid or oversized input ends its own connection only.
func TestHostilePeers(t *testing.T) {
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	hello := string(greeting) + "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"
	curve := strings.Replace(string(greeting), "NULL", "CURVE", 1)
	p, s := publisher(t, events.PublisherConfig{Heartbeat: time.Millisecond}, SenderConfig{})
	attacks := map[string]string{
		"noise":               strings.Repeat("GET / HTTP/1.1\r\n", 10),
		"another mechanism":   curve,
		"a message at first":  string(greeting) + "\x00\x01a",
		"another command":     string(greeting) + "\x04\x06\x05HELLO",
		"a huge command":      string(greeting) + "\x06\xff\xff\xff\xff\xff\xff\xff\xff",
		"broken properties":   string(greeting) + "\x04\x08\x05READY\xffa",
		"a huge property":     string(greeting) + "\x04\x0c\x05READY\x01a\xff\xff\xff\xff",
		"no type":             string(greeting) + "\x04\x06\x05READY",
		"another type":        strings.Replace(hello, "SUB", "PUB", 1),
		"a huge frame":        hello + "\x02\x7f\xff\xff\xff\xff\xff\xff\xff",
		"unknown flags":       hello + "\xf8\x01a",
		"frames without end":  hello + strings.Repeat("\x01\x00", 100),
		"a broken command":    hello + "\x04\x02\xffa",
		"too many wishes":     hello + strings.Repeat("\x00\x02\x01a", maxPrefixes+1),
		"a wish that is huge": hello + "\x02\x00\x00\x00\x00\x00\x00\x05\x00\x01" + strings.Repeat("a", 1279),
	}
	for name, bytes := range attacks {
		nc, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(nc, bytes)
		if n, err := io.Copy(io.Discard, nc); err == nil && n > 1<<20 {
			t.Errorf("%s: %d bytes in answer", name, n)
		} // ends when the sender closes the connection
		_ = nc.Close()
	}
	dealer := strings.Replace(hello, "\x04\x19", "\x04\x1c", 1)
	dealer = strings.Replace(dealer, "\x03SUB", "\x06DEALER", 1)
	for _, ask := range []string{"\x00\x01a", "\x01\x00\x00\x03abc", "\x01\x01a\x00\x0812345678"} {
		nc, err := net.Dial("tcp", s.ReplayAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		refused := s.refused.Load()
		_, _ = io.WriteString(nc, dealer+ask+"\x01\x00\x00\x08\xff\xff\xff\xff\xff\xff\xff\xff")
		c := conn{Conn: nc, limit: 1 << 20}
		c.r = newReader(nc)
		if _, err := io.ReadFull(c.r, make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		if _, command, err := c.read(); command != "READY" || err != nil {
			t.Fatalf("%q %v", command, err)
		}
		if frames, _, err := c.read(); err != nil || len(frames) != 4 || binary.BigEndian.Uint64(frames[2]) != events.EndSeq {
			t.Errorf("%q: after the nonsense: %q, %v", ask, frames, err)
		}
		if s.refused.Load() != refused+1 {
			t.Errorf("%q was not refused", ask)
		}
		_ = nc.Close()
	}
	c, sink := eventstest.NewCache(), eventstest.NewSet()
	follow(t, sink, SourceConfig{Endpoint: endpoint(s.Addr()), ReplayEndpoint: endpoint(s.ReplayAddr())}, events.SubscriberConfig{})
	p.Publish(c.Step(4))
	sink.Until(c.Held)
}

// TestHostilePublisher: a publisher with invalid answers is disconnected and asked again.
func TestHostilePublisher(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	hello := string(greeting) + "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"
	lines := []string{"", "noise", hello + "\x02\x7f\xff\xff\xff\xff\xff\xff\xff", hello + "\x00\x01a\x01\x00\x01\x00\x00\x00",
		hello + "\x01\x00\x01\x08\x00\x00\x00\x00\x00\x00\x00\x07\x00\x05wrong"}
	src := NewSource(SourceConfig{Endpoint: endpoint(l.Addr()), Redial: time.Millisecond})
	frames := src.Start()
	for _, line := range lines {
		nc, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(nc, line)
		_ = nc.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, nc)
		_ = nc.Close()
	}
	var kinds []events.FrameKind
	for f := range frames {
		kinds = append(kinds, f.Kind)
		if f.Kind == events.FrameBatch {
			break
		}
	}
	const up, bad, down = events.FrameConnected, events.FrameMalformed, events.FrameDisconnected
	if want := []events.FrameKind{up, bad, down, up, bad, bad, down, up, events.FrameBatch}; !slices.Equal(kinds, want) {
		t.Errorf("%v, want %v", kinds, want)
	}
	_ = src.Close()
	_ = l.Close()
}

// TestEndlessSnapshot: a snapshot of empty batches has no bytes, but still a limit.
func TestEndlessSnapshot(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		c, err := handshake(nc, "ROUTER", 1<<10, time.Minute, "DEALER")
		if err != nil {
			return
		}
		number := make([]byte, 8)
		head := binary.BigEndian.AppendUint64([]byte(snapshotRequest), 7)
		for err = c.write(nil, nil, number, binary.BigEndian.AppendUint64(head, 1<<62)); err == nil; {
			err = c.write(nil, nil, number, nil)
		}
	})
	src := NewSource(SourceConfig{Endpoint: "tcp://127.0.0.1:1", ReplayEndpoint: endpoint(l.Addr()), SnapshotBytes: 1 << 20})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := src.Snapshot(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("%v", err)
	}
	_ = l.Close()
	served.Wait()
}

// TestRefusedIsCounted: a refused peer is counted before its connection closes.
func TestRefusedIsCounted(t *testing.T) {
	_, s := publisher(t, events.PublisherConfig{Heartbeat: -1}, SenderConfig{})
	for i := range uint64(500) {
		nc, err := net.Dial("tcp", s.ReplayAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(nc, strings.Repeat("GET / HTTP/1.1\r\n", 4)) // as long as a greeting
		_, _ = io.Copy(io.Discard, nc)
		_ = nc.Close()
		if n := s.refused.Load(); n != i+1 {
			t.Fatalf("%d are counted after %d", n, i+1)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x03abc"))
	f.Add([]byte("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"))
	f.Add([]byte("\x02\x7f\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := conn{r: newReader(bytes.NewReader(data)), limit: 1 << 12}
		for total := 0; ; {
			frames, _, err := c.read()
			if err != nil {
				return
			}
			for _, body := range frames {
				total += len(body) + 2
			}
			if total > len(data) || len(frames) > maxFrames {
				t.Fatalf("%d bytes in %d frames", total, len(frames))
			}
		}
	})
}

func FuzzSocketType(f *testing.F) {
	f.Add("\x0bSocket-Type\x00\x00\x00\x03SUB")
	f.Add("\x08Identity\x00\x00\x00\x00\x0bsocket-type\x00\x00\x00\x03PUB")
	f.Fuzz(func(t *testing.T, props string) {
		if kind, err := socketType(props); err == nil && !strings.Contains(props, kind) {
			t.Fatalf("%q", kind)
		}
	})
}
