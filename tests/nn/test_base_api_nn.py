"""The rows of `tensormesh.nn`: containers of tensors."""

import pytest
import torch
from torch import nn

import tensormesh
from tensormesh.nn import BufferDict, BufferList


def test_row_exports_of_nn():
    """base-api 1 | `tensormesh.nn`: `BufferDict`, `BufferList`."""
    assert tensormesh.nn.BufferDict is BufferDict
    assert tensormesh.nn.BufferList is BufferList


def test_row_buffer_dict():
    """base-api 1 | `BufferDict(dict)`: a dict of tensors that is a module.

    features | BufferDict: serial.
    """
    data = BufferDict({"u": torch.zeros(3), "gmsh:tags": torch.ones(2)})
    data["v"] = torch.ones(1)
    assert ("u" in data, "w" in data, len(data)) == (True, False, 3)
    assert list(data) == list(data.keys()) == ["u", "gmsh:tags", "v"]
    items = data.items()
    assert len(list(items)) == 3
    assert list(items) == []  # an iterator, to be used once
    assert data.u is data["u"]
    assert set(data.state_dict()) == {"u", "v"}
    assert {t.dtype for t in data.double().values()} == {torch.float64}
    assert isinstance(data.to_dict(), dict)


def test_row_buffer_dict_parameters():
    """base-api 1 | `BufferDict`: `clone()`, `as_parameter(key)`, `as_buffer(key)`."""
    data = BufferDict({"u": torch.zeros(3)})
    assert [name for name, _ in data.as_parameter("u").named_parameters()] == ["u"]
    copy = data.clone()
    copy["u"].sum().backward()
    assert torch.equal(data["u"].grad, torch.ones(3))
    assert list(data.as_buffer("u").parameters()) == []


def test_row_buffer_list():
    """base-api 1 | `BufferList`: a list of tensors that is a module.

    features | BufferList: serial.
    """
    data = BufferList([torch.zeros(3), torch.ones(2)])
    data.append(torch.ones(1)).extend([torch.ones(4), torch.ones(5)])
    assert [len(t) for t in data] == [3, 2, 1, 4, 5]
    assert len(data) == 5
    assert len(data[-1]) == 5
    data[0] = torch.ones(7)
    assert [len(t) for t in data] == [7, 2, 1, 4, 5]
    assert list(data.state_dict()) == ["0", "1", "2", "3", "4"]
    assert {t.dtype for t in data.double()} == {torch.float64}
    holder = nn.Module()
    holder.levels = data
    assert "levels.0" in holder.state_dict()


def test_row_buffer_list_refuses():
    """base-api 1 | `BufferList`: what is no tensor, and places that are not there."""
    data = BufferList([torch.zeros(3)])
    for place in (1, -2):
        with pytest.raises(IndexError, match="there are 1"):
            data[place]
        with pytest.raises(IndexError, match="there are 1"):
            data[place] = torch.zeros(1)
    with pytest.raises(TypeError, match="must be a tensor"):
        data.append(3.0)
