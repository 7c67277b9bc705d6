package coppice_test

import (
	"context"
	"fmt"
	"log"

	"github.com/coppice-llm/coppice"
	"github.com/coppice-llm/coppice/local"
	"github.com/coppice-llm/coppice/tokenizer/chat"
	"github.com/coppice-llm/coppice/tool"
)

// Example_agent is an agent with two tools, of which one asks two forks of the agent. TestEmbedding runs it.
func Example_agent() {
	ctx := context.Background()
	m, err := local.Open("path/to/model", local.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	type lamp struct {
		On bool `json:"on" jsonschema:"whether the lamp is to burn"`
	}
	type question struct {
		Urgent bool `json:"urgent"`
	}
	var agent *coppice.Session
	light := tool.New("light", "Switches the lamp.", func(ctx context.Context, in lamp) (string, error) {
		fmt.Println("the lamp burns:", in.On)
		return "done", nil
	})
	advice := tool.New("advice", "Asks two advisers.", func(ctx context.Context, in question) (said []string, err error) {
		for _, side := range []string{"for", "against"} {
			adviser, err := agent.Fork() // has read what the agent has read
			if err != nil {
				return nil, err
			}
			defer adviser.Release()
			r, err := adviser.Chat(ctx, chat.Message{Role: "user", Content: "Argue " + side + " more light."})
			fmt.Println("an adviser:", r.CachedTokens, "tokens cached", err)
			said = append(said, r.Text)
		}
		return said, nil
	})
	ask := coppice.ChatOptions{Request: coppice.Request{MaxTokens: 128, Sampling: m.Sampling}}
	agent, err = m.NewSession(coppice.SessionOptions{Chat: ask, Tools: tool.Set{light, advice}, MustCall: true, Budget: 10000})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := agent.Run(ctx, chat.Message{Role: "user", Content: "It is dark. What now?"})
	fmt.Println("the answer:", answer.Text, err)
}
