module github.com/coppice-llm/coppice/tools/cuda

go 1.26.0
