"""Several nodes on one store: who is there, who owns what, and how a shard changes hands.

All of it only decides how few timers fire twice and how soon a dead node's fire elsewhere.
That nothing is lost rests on the lease version alone.
"""
