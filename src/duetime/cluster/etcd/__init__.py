"""Membership through etcd: leases that run out, and watches that say so at once."""

from duetime.cluster.etcd.membership import EtcdMembership

__all__ = ["EtcdMembership"]
