"""`tickwheel serve`: accepts messages over HTTP (rules D9, D11, D12).

Nothing is imported here: each part needs libraries of its own, `pip install 'tickwheel[serve]'`.
"""
