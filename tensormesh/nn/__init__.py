"""Containers of tensors that move with the module that holds them."""

from tensormesh.mesh.buffers import BufferDict
from tensormesh.nn.buffer_list import BufferList

__all__ = ["BufferDict", "BufferList"]
