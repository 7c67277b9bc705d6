module github.com/coppice-llm/coppice/tools/neon

go 1.26.0
