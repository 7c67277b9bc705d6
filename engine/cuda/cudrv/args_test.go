package cudrv_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/coppice-llm/coppice/engine/cuda/cudrv"
)

func TestArgs(t *testing.T) {
	got := cudrv.Args(int32(1), cudrv.Ptr(2), float32(1), uint64(3))
	want := []byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}
	if !bytes.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("an int, whose size depends on the machine, was accepted")
		}
	}()
	cudrv.Args(1)
}

func TestErrors(t *testing.T) {
	for code, want := range map[int]error{1: cudrv.ErrInvalid, 2: cudrv.ErrMemory, 100: cudrv.ErrNoDevice, 101: cudrv.ErrNoDevice, 201: cudrv.ErrInvalid, 209: cudrv.ErrImage, 214: cudrv.ErrLost,
		222: cudrv.ErrImage, 400: cudrv.ErrInvalid, 500: cudrv.ErrNotFound, 700: cudrv.ErrLost, 701: cudrv.ErrInvalid, 716: cudrv.ErrLost, 719: cudrv.ErrLost,
		801: cudrv.ErrNotAllowed, 900: cudrv.ErrNotAllowed, 999: cudrv.ErrLost} {
		inner := errors.New("said")
		err := error(&cudrv.Error{Call: "cuCall", Code: code, Err: inner})
		if !errors.Is(err, want) || !errors.Is(err, inner) {
			t.Errorf("code %d: %v is not %v", code, err, want)
		}
		for _, other := range []error{cudrv.ErrInvalid, cudrv.ErrMemory, cudrv.ErrNoDevice, cudrv.ErrImage, cudrv.ErrNotFound, cudrv.ErrLost, cudrv.ErrNotAllowed} {
			if other != want && errors.Is(err, other) {
				t.Errorf("code %d is %v as well", code, other)
			}
		}
	}
}
