package zmq

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits on a peer; exceeding one ends the connection.
const (
	maxCommand = 4 << 10 // bytes of a command, including the handshake's
	maxFrames  = 16      // per message
)

// Flags of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

var errProtocol = errors.New("zmq: the peer does not speak ZMTP 3 as expected")

// conn is a ZMTP connection after the handshake. One goroutine may read while another one
// writes. The reader answers PINGs.
type conn struct {
	net.Conn
	r     *bufio.Reader
	limit int           // most bytes of a message
	alive time.Duration // how long the peer may be silent, as its last PING says; 0: forever

	timeout time.Duration // limit for each write; 0: none
	writing sync.Mutex    // guards w
	w       *bufio.Writer
}

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 64<<10) }

// handshake makes a conn of nc, which the caller must still close. own is the type of this
// socket, peers are the accepted types of the other one. limit is the most bytes of a message,
// timeout the limit for the handshake.
func handshake(nc net.Conn, own string, limit int, timeout time.Duration, peers ...string) (*conn, error) {
	c := &conn{Conn: nc, r: newReader(nc), w: bufio.NewWriterSize(nc, 64<<10), limit: limit}
	if err := c.greet(own, timeout, peers); err != nil {
		return nil, fmt.Errorf("zmq: handshake with %v: %w", nc.RemoteAddr(), err)
	}
	return c, nil
}

// greet exchanges greetings and READY commands, and checks version, mechanism and the peer's
// socket type.
func (c *conn) greet(own string, timeout time.Duration, peers []string) error {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	var greeting [64]byte
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	ready := []byte("\x05READY\x0bSocket-Type")
	ready = binary.BigEndian.AppendUint32(ready, uint32(len(own)))
	ready = append(ready, own...)
	// The identity is left out: peers check it only if it is sent.
	if _, err := c.w.Write(greeting[:]); err != nil {
		return err
	}
	if err := c.frame(flagCommand, ready); err != nil {
		return err
	}
	if err := c.w.Flush(); err != nil {
		return err
	}
	if _, err := io.ReadFull(c.r, greeting[:]); err != nil {
		return err
	}
	mechanism, _, _ := strings.Cut(string(greeting[12:32]), "\x00")
	if greeting[0] != 0xff || greeting[9] != 0x7f || greeting[10] < 3 || mechanism != "NULL" {
		return fmt.Errorf("%w: version %d, mechanism %q", errProtocol, greeting[10], mechanism)
	}
	flags, body, err := c.readFrame(maxCommand)
	if err != nil {
		return err
	}
	rest, isReady := strings.CutPrefix(string(body), "\x05READY")
	if flags&flagCommand == 0 || !isReady {
		return fmt.Errorf("%w: no READY", errProtocol)
	}
	kind, err := socketType(rest)
	if err != nil {
		return err
	}
	if !slices.Contains(peers, kind) {
		return fmt.Errorf("%w: a %s socket, want %s", errProtocol, kind, strings.Join(peers, " or "))
	}
	return c.SetDeadline(time.Time{})
}

// socketType returns the value of Socket-Type in props, the properties of a READY command. Each
// property is a name after a length of 1 byte, and a value after a length of 4 bytes.
func socketType(props string) (string, error) {
	for props != "" {
		n := int(props[0])
		if len(props) < 1+n+4 {
			break
		}
		name := props[1 : 1+n]
		size := uint64(binary.BigEndian.Uint32([]byte(props[1+n : 1+n+4])))
		props = props[1+n+4:]
		if uint64(len(props)) < size {
			break
		}
		if strings.EqualFold(name, "Socket-Type") {
			return props[:size], nil
		}
		props = props[size:]
	}
	return "", fmt.Errorf("%w: no socket type", errProtocol)
}

// readFrame reads a frame: flags, a length of 1 or 8 bytes, and a body. A body of more than most
// bytes is an error; memory is allocated only after this check.
func (c *conn) readFrame(most int) (flags byte, body []byte, err error) {
	if flags, err = c.r.ReadByte(); err != nil {
		return 0, nil, err
	}
	var length [8]byte
	head := length[7:]
	if flags&flagLong != 0 {
		head = length[:]
	}
	if _, err := io.ReadFull(c.r, head); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint64(length[:])
	if flags > 7 || n > uint64(most) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes, at most %d, flags %#x", errProtocol, n, most, flags)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(c.r, body)
	return flags, body, err
}

// read returns the next message, or the name and data of the next command. It answers PING and
// skips PONG. A message or command that is too large is an error.
func (c *conn) read() (frames [][]byte, command string, err error) {
	left := c.limit
	for {
		if c.alive > 0 {
			if err := c.SetReadDeadline(time.Now().Add(c.alive)); err != nil {
				return nil, "", err
			}
		}
		flags, body, err := c.readFrame(left)
		if err != nil {
			return nil, "", err
		}
		if flags&flagCommand != 0 {
			if len(frames) > 0 || len(body) == 0 || len(body) < 1+int(body[0]) {
				return nil, "", fmt.Errorf("%w: a broken command", errProtocol)
			}
			name, data := string(body[1:1+body[0]]), body[1+body[0]:]
			if name == "PING" || name == "PONG" {
				if err := c.heartbeat(name, data); err != nil {
					return nil, "", err
				}
				continue
			}
			return [][]byte{data}, name, nil
		}
		left -= len(body)
		frames = append(frames, body)
		if flags&flagMore == 0 {
			return frames, "", nil
		}
		if len(frames) == maxFrames {
			return nil, "", fmt.Errorf("%w: over %d frames in a message", errProtocol, maxFrames)
		}
	}
}

// frame writes one frame to the buffer.
func (c *conn) frame(flags byte, body []byte) error {
	head := make([]byte, 0, 9)
	if len(body) > 255 {
		head = binary.BigEndian.AppendUint64(append(head, flags|flagLong), uint64(len(body)))
	} else {
		head = append(head, flags, byte(len(body)))
	}
	if _, err := c.w.Write(head); err != nil {
		return err
	}
	_, err := c.w.Write(body)
	return err
}

// maxContext bounds the context in a PING (ZMTP 3.1, section "PING and PONG"), in bytes.
const maxContext = 16

// heartbeat handles a PING, and ignores a PONG. The data of a PING is a time in tenths of a
// second after which a silent peer counts as dead (0: never), and a context of at most
// maxContext bytes that the answer repeats.
func (c *conn) heartbeat(name string, data []byte) error {
	if name == "PONG" {
		return nil
	}
	if len(data) < 2 || len(data) > 2+maxContext {
		return fmt.Errorf("%w: a PING of %d bytes", errProtocol, len(data))
	}
	c.alive = time.Duration(binary.BigEndian.Uint16(data)) * (time.Second / 10)
	if c.alive == 0 {
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
	return c.locked(func() error {
		return errors.Join(c.frame(flagCommand, append([]byte("\x04PONG"), data[2:]...)), c.w.Flush())
	})
}

// locked calls write while it holds the lock of the writer, with a new write deadline.
func (c *conn) locked(write func() error) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.timeout > 0 {
		if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
			return err
		}
	}
	return write()
}

// subscribe subscribes to topics with a prefix (what 1), or ends that subscription (what 0).
func (c *conn) subscribe(what byte, prefix string) error {
	return errors.Join(c.write(append([]byte{what}, prefix...)), c.flush())
}

// flush sends the buffered bytes.
func (c *conn) flush() error { return c.locked(func() error { return c.w.Flush() }) }

// write buffers a message; flush sends it.
func (c *conn) write(frames ...[]byte) error {
	return c.locked(func() error { return c.message(frames) })
}

// message is write for a caller that holds the lock.
func (c *conn) message(frames [][]byte) error {
	for i, body := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		if err := c.frame(flags, body); err != nil {
			return err
		}
	}
	return nil
}
