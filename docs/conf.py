import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

import contracts  # noqa: E402

os.environ.setdefault("OMP_NUM_THREADS", "1")  # notebooks start ranks that share the cores

project = "tensormesh"
author = "The tensormesh authors"
copyright = author
version = release = installed_version("tensormesh-sharded")

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "myst_nb", "numpydoc"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints", "notebooks/output"]
exclude_patterns += ["generated/contracts.md", "partition_quality.md"]  # parts of pages
templates_path = ["_templates"]

html_theme = "pydata_sphinx_theme"
html_title = f"tensormesh {release}"
html_show_sourcelink = False
html_theme_options = {"show_toc_level": 2}

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3

nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True

autosummary_generate = True
autosummary_imported_members = False
autodoc_typehints = "none"  # signatures have them; the text has shapes
numpydoc_show_class_members = False  # classes list their members themselves

(DOCS / "generated").mkdir(exist_ok=True)
(DOCS / "generated" / "contracts.md").write_text(contracts.page(list(contracts.rows())))
