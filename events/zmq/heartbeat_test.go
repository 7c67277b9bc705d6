package zmq

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coppice-llm/coppice/events"
	"github.com/coppice-llm/coppice/events/eventstest"
)

// The bytes of ZMTP 3.1: flags of a command, its length, the length of its name, its name. A
// PING has a time to live in tenths of a second, and a context that its PONG repeats.
const (
	ping      = "\x04\x0a\x04PING\x00\x00abc"
	pingEmpty = "\x04\x07\x04PING\x00\x00"
	pong      = "\x04\x08\x04PONGabc"
	pongEmpty = "\x04\x05\x04PONG"
)

// peers returns a connection to each of our sockets, from the other end.
func peers(t *testing.T) map[string]*conn {
	t.Helper()
	_, s := publisher(t, events.PublisherConfig{Heartbeat: -1}, SenderConfig{})
	dialled := func(a net.Addr, own string, theirs string) *conn {
		nc, err := net.Dial("tcp", a.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		c, err := handshake(nc, own, maxCommand, time.Minute, theirs)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	src := NewSource(SourceConfig{Endpoint: endpoint(l.Addr())})
	t.Cleanup(func() { src.Close() })
	src.Start()
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	pub, err := handshake(nc, "PUB", maxCommand, time.Minute, "SUB")
	if err != nil {
		t.Fatal(err)
	}
	if frames, _, err := pub.read(); err != nil || string(frames[0]) != "\x01" { // its subscription
		t.Fatal(frames, err)
	}
	return map[string]*conn{"PUB": dialled(s.Addr(), "SUB", "PUB"), "ROUTER": dialled(s.ReplayAddr(), "DEALER", "ROUTER"), "SUB": pub}
}

// TestPing: each of our sockets answers PINGs with their context, and accepts PONGs.
func TestPing(t *testing.T) {
	for name, c := range peers(t) {
		for sent, want := range map[string]string{ping: pong, pingEmpty: pongEmpty, pong + pingEmpty + ping: pongEmpty + pong} {
			if _, err := io.WriteString(c.Conn, sent); err != nil {
				t.Fatal(name, err)
			}
			got := make([]byte, len(want))
			c.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.ReadFull(c.r, got); err != nil || string(got) != want {
				t.Errorf("%s answers %q with %q, want %q: %v", name, sent, got, want, err)
			}
		}
	}
}

// TestBadPing: a PING without a time, or with too long a context, ends the connection.
func TestBadPing(t *testing.T) {
	for _, bad := range []string{"\x04\x06\x04PING\x00", "\x04\x18\x04PING\x00\x00" + strings.Repeat("x", maxContext+1)} {
		for name, c := range peers(t) {
			if _, err := io.WriteString(c.Conn, bad); err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Now().Add(time.Minute))
			if b, err := c.r.ReadByte(); err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("%s goes on after %q: %x %v", name, bad, b, err)
			}
		}
	}
}

// TestTimeToLive: a peer that is silent beyond its announced time to live is disconnected.
func TestTimeToLive(t *testing.T) {
	for name, c := range peers(t) {
		if _, err := io.WriteString(c.Conn, "\x04\x07\x04PING\x00\x01"); err != nil { // a tenth of a second
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if rest, err := io.ReadAll(c.r); err != nil || !bytes.HasPrefix(rest, []byte(pongEmpty)) {
			t.Errorf("%s: %q %v", name, rest, err)
		}
	}
}

// python runs heartbeat.py, if libzmq is installed.
func python(t *testing.T, args ...string) (*exec.Cmd, io.WriteCloser, *bufio.Reader) {
	t.Helper()
	if exec.Command("python3", "-c", "import zmq").Run() != nil {
		t.Skip("there is no Python with pyzmq")
	}
	cmd := exec.Command("python3", append([]string{"../testdata/heartbeat.py"}, args...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if complaints.Len() > 0 {
			t.Log(complaints.String())
		}
	})
	return cmd, in, bufio.NewReader(out)
}

// ended reads the last line of heartbeat.py.
func ended(t *testing.T, out *bufio.Reader) (messages int) {
	t.Helper()
	broken := 0
	line, err := out.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscanf(line, "messages %d broken %d", &messages, &broken)
	}
	if err != nil || messages == 0 || broken != 0 {
		t.Errorf("it says %q: %v", line, err)
	}
	return messages
}

// TestHeartbeatsOfALibzmqSubscriber: a libzmq subscriber with heartbeats stays connected.
func TestHeartbeatsOfALibzmqSubscriber(t *testing.T) {
	p, s := publisher(t, events.PublisherConfig{Heartbeat: time.Second}, SenderConfig{})
	p.Publish(eventstest.NewCache().Step(4))
	_, _, out := python(t, "sub", endpoint(s.Addr()))
	ended(t, out)
}

// TestHeartbeatsOfALibzmqPublisher: we stay connected to a libzmq publisher with heartbeats.
func TestHeartbeatsOfALibzmqPublisher(t *testing.T) {
	_, in, out := python(t, "pub")
	if _, err := in.Write(batchOf(7)); err != nil {
		t.Fatal(err)
	}
	in.Close()
	port := 0
	if _, err := fmt.Fscanln(out, &port); err != nil {
		t.Fatal(err)
	}
	src := NewSource(SourceConfig{Endpoint: fmt.Sprintf("tcp://127.0.0.1:%d", port)})
	defer src.Close()
	frames := src.Start()
	done := make(chan int, 1)
	go func() { done <- ended(t, out) }()
	connected, batches := 0, 0
	for {
		select {
		case f := <-frames:
			switch f.Kind {
			case events.FrameConnected:
				connected++
			case events.FrameBatch:
				batches++
			}
			continue
		case <-done:
		}
		break
	}
	if connected != 1 || batches == 0 {
		t.Errorf("%d connections, %d batches", connected, batches)
	}
}
