package sim

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

//go:embed profiles/*.json
var shipped embed.FS

// Profile describes a model on a device: the figures from which [Profile.Step] computes the
// time of a batch. The zero Profile costs one microsecond a step.
type Profile struct {
	Name   string     `json:"name"`
	Source string     `json:"source"` // source of the figures
	Model  Model      `json:"model"`
	Device Device     `json:"device"`
	Eff    Efficiency `json:"eff"`
}

// Model holds the dimensions of a decoder-only transformer.
type Model struct {
	Name         string  `json:"name"`
	Params       int64   `json:"params"`        // number of all weights in memory
	LinearParams int64   `json:"linear_params"` // the layers' matrices: one multiply-add each per token
	Layers       int     `json:"layers"`
	Hidden       int     `json:"hidden"`
	Heads        int     `json:"heads"`
	KVHeads      int     `json:"kv_heads"`
	HeadDim      int     `json:"head_dim"`
	Vocab        int     `json:"vocab"`
	MaxPositions int     `json:"max_positions"` // tokens
	WeightBytes  float64 `json:"weight_bytes"`  // per weight
	KVBytes      int     `json:"kv_bytes"`      // per element of K and V: 1, 2 or 4
}

// Device holds the figures of a data sheet.
type Device struct {
	Name    string  `json:"name"`
	BW      float64 `json:"bw"`         // memory, bytes per second
	Flops   float64 `json:"flops"`      // dense, per second, of the model's element type
	PCIe    float64 `json:"pcie_bw"`    // to the host, bytes per second and direction
	PCIeLat float64 `json:"pcie_lat_s"` // seconds per transfer
	Mem     int64   `json:"mem"`        // bytes
}

// Efficiency holds the share of the device's figures that each part reaches, and the overheads
// of a step. Shares, whose JSON names begin with e_, are in (0, 1].
type Efficiency struct {
	Weights float64 `json:"e_w"`    // of BW, reading weights
	Flops   float64 `json:"e_f"`    // of Flops, products over many tokens
	NHalf   float64 `json:"n_half"` // tokens at which products reach half of e_f
	Attend  float64 `json:"e_a"`    // of Flops, attention of prompts
	KVTile  float64 `json:"e_k"`    // of BW, reading KV for prompts
	KVRow   float64 `json:"e_d"`    // of BW, reading KV for decode rows
	Sample  float64 `json:"e_s"`    // of BW, reading logits
	PCIe    float64 `json:"e_p"`    // of PCIe
	Row     float64 `json:"r0_s"`   // seconds per row
	Step    float64 `json:"t0_s"`   // seconds per step
	Host0   float64 `json:"h0_s"`   // seconds to plan and launch a step
	Host1   float64 `json:"h1_s"`   // seconds more per row
}

// Profiles returns the names of the shipped profiles, ascending.
func Profiles() []string {
	entries, err := shipped.ReadDir("profiles")
	if err != nil {
		panic(fmt.Sprintf("sim: the embedded profiles: %v", err))
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".json"))
	}
	slices.Sort(names)
	return names
}

// ProfileByName returns a shipped profile. The error for an unknown name lists all names.
func ProfileByName(name string) (Profile, error) {
	if !slices.Contains(Profiles(), name) {
		return Profile{}, fmt.Errorf("sim: there is no profile %q, only %s", name, strings.Join(Profiles(), ", "))
	}
	text, err := shipped.ReadFile(path.Join("profiles", name+".json"))
	if err != nil {
		return Profile{}, fmt.Errorf("sim: profile %s: %w", name, err)
	}
	p, err := ParseProfile(text)
	if err == nil && p.Name != name {
		err = fmt.Errorf("sim: profile %s calls itself %q", name, p.Name)
	}
	return p, err
}

// ParseProfile reads a profile from JSON. Unknown fields and invalid values are errors.
func ParseProfile(text []byte) (Profile, error) {
	var p Profile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Profile{}, fmt.Errorf("sim: profile: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Profile{}, errors.New("sim: profile: text follows the object; want one object")
	}
	return p, p.Validate()
}

// Validate reports every invalid field by name and value. All fields are required and
// positive; the zero Profile is valid.
func (p *Profile) Validate() error {
	if p.free() {
		return nil
	}
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("sim: profile %q: %s is %v, want %s", p.Name, field, value, want))
	}
	for _, part := range []struct {
		prefix string
		fields any
	}{{"", *p}, {"model.", p.Model}, {"device.", p.Device}, {"eff.", p.Eff}} {
		for f, v := range reflect.ValueOf(part.fields).Fields() {
			name, number := f.Tag.Get("json"), 0.0
			switch {
			case v.CanInt():
				number = float64(v.Int())
			case v.CanFloat():
				number = v.Float()
			case v.Kind() == reflect.String && v.Len() == 0:
				bad(part.prefix+name, `""`, "a text")
				continue
			default:
				continue
			}
			if !(number > 0) || math.IsInf(number, 0) {
				bad(part.prefix+name, number, "a positive number")
			} else if strings.HasPrefix(name, "e_") && number > 1 {
				bad(part.prefix+name, number, "a share up to 1")
			}
		}
	}
	m := &p.Model
	if m.KVBytes != 1 && m.KVBytes != 2 && m.KVBytes != 4 {
		bad("model.kv_bytes", m.KVBytes, "1, 2 or 4")
	}
	if m.KVHeads > 0 && m.Heads%m.KVHeads != 0 {
		bad("model.heads", m.Heads, fmt.Sprintf("a multiple of the %d kv_heads", m.KVHeads))
	}
	if head := int64(m.Vocab) * int64(m.Hidden); m.LinearParams > m.Params-head {
		bad("model.linear_params", m.LinearParams, fmt.Sprintf("at most params less the head, %d", m.Params-head))
	}
	if len(errs) == 0 && p.KVTokens() < m.MaxPositions/16 {
		bad("device.mem", p.Device.Mem, "room for the weights and KV of a sixteenth of max_positions at least")
	}
	return errors.Join(errs...)
}

// free reports whether p is the zero Profile.
func (p *Profile) free() bool { return *p == Profile{} }

// kvType returns the element type with Model.KVBytes bytes.
func (p *Profile) kvType() kv.DType {
	switch p.Model.KVBytes {
	case 1:
		return kv.FP8
	case 2:
		return kv.BF16
	default:
		return kv.F32
	}
}
