"""Groups of terminals and pools of a carrier: what each got, and how much of the carrier it took."""

import polars as pl

__all__ = ["by_group"]


def by_group(
    terminals: pl.DataFrame, duration: float, experience: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return a row for each group of terminals and each pool, of every setting and seed.

    `terminals` is the table of the same name with `setting` and `seed`, `duration` the measured time [s],
    `experience` the result of `Result.experience`. A pool has all terminals in it and in the pools inside.
    Columns: `kind` (`terminals` or `pool`), `group`, number of `terminals`, their `goodput` and `throughput`
    together [bit/s], `carrier_share` of the measured time, `byte_share` of all bytes sent (null without any),
    `drop_rate` (dropped packets as a share of those and of the sent ones, although a PEP sends other packets
    than those dropped ahead of it), `jain_index` of goodput, `pages` and their mean loading time [s], and,
    with `experience`, `terminals_bad`: those with a grade that is bad in at least one class, as a share of
    those with a grade [%].
    """
    keys = ["setting", "seed"]
    if experience is not None:
        graded = experience.drop_nulls("grade").group_by(*keys, "terminal")
        terminals = terminals.join(
            graded.agg((pl.col("grade") == "bad").any().alias("bad")), on=[*keys, "terminal"], how="left"
        )
    found = terminals.with_columns(pl.col("sent_bytes").sum().over(keys).alias("all_bytes"))
    levels = [_summed(found, keys, "terminals", pl.col("group"))]
    if "pool" in found.columns:
        names = found["pool"].drop_nulls().unique(maintain_order=True).to_list()
        parts = (name.split("/") for name in names)
        pools = dict.fromkeys("/".join(each[:depth]) for each in parts for depth in range(1, len(each) + 1))
        for pool in pools:
            inside = (pl.col("pool") == pool) | pl.col("pool").str.starts_with(f"{pool}/")
            levels.append(_summed(found.filter(inside), keys, "pool", pl.lit(pool)))
    return pl.concat(levels).with_columns(
        pl.col("throughput") * (8 / duration), pl.col("carrier_share") / duration
    )


def _summed(terminals: pl.DataFrame, keys: list[str], kind: str, group: pl.Expr) -> pl.DataFrame:
    goodput, sent, dropped = (pl.col(name) for name in ("goodput", "sent_packets", "dropped_packets"))
    pages = pl.col("pages").sum()
    bad = [(100 * pl.col("bad").mean()).alias("terminals_bad")] if "bad" in terminals.columns else []
    return (
        terminals.with_columns(pl.lit(kind).alias("kind"), group.alias("group"))
        .group_by(*keys, "kind", "group", maintain_order=True)
        .agg(
            pl.len().alias("terminals"),
            goodput.sum(),
            pl.col("sent_bytes").sum().alias("throughput"),
            pl.col("carrier_seconds").sum().alias("carrier_share"),
            (pl.col("sent_bytes").sum() / pl.col("all_bytes").first()).fill_nan(None).alias("byte_share"),
            (dropped.sum() / (sent.sum() + dropped.sum())).fill_nan(0).alias("drop_rate"),
            (goodput.sum() ** 2 / (pl.len() * (goodput**2).sum())).fill_nan(None).alias("jain_index"),
            pages,
            ((pl.col("page_time_mean") * pl.col("pages")).sum() / pages)
            .fill_nan(None)
            .alias("page_time_mean"),
            *bad,
        )
    )
