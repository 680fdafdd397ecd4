"""The CUDA side of ROSE: kernel choice, graphs, pinned staging, the engine. Imported only where there is a GPU."""
