package main

import (
	"errors"
	"fmt"

	"github.com/coppice-llm/coppice/gateway"
)

// bind sets where the gateway listens for publishers that connect.
func (c *routeCmd) bind(cfg *gateway.Config, rest string) error {
	b, err := gateway.ParseBind(rest)
	if err == nil && cfg.Bind != nil {
		err = errors.New("there is already one of this kind")
	}
	if err != nil {
		return fmt.Errorf("--events %s%.200s: %w", gateway.BindScheme, rest, err)
	}
	cfg.Bind = b
	return nil
}
