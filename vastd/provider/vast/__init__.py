"""The adapter for Vast's REST API.

`client` knows which request asks for what, `orders` what goes into the two large ones, `http`
sends one, `failures` and `limits` judge a refusal, `wire` and `listing` read a success.
"""
