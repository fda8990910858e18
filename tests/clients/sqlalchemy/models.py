"""A shop as an application would map it: keys, relations, enums, arrays, documents, indexes of every kind."""
import datetime
import decimal
import enum
import uuid

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    metadata = sa.MetaData(naming_convention={
        "ix": "ix_%(column_0_label)s", "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s", "pk": "pk_%(table_name)s"})


class State(enum.Enum):
    NEW = "new"
    PAID = "paid"
    SENT = "sent"


labels = sa.Table(
    "product_labels", Base.metadata,
    sa.Column("product_id", sa.ForeignKey("products.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("label_id", sa.ForeignKey("labels.id", ondelete="CASCADE"), primary_key=True))


class Customer(Base):
    __tablename__ = "customers"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(sa.String(120), unique=True)
    name: Mapped[str | None] = mapped_column(sa.Text)
    born: Mapped[datetime.date | None]
    token: Mapped[uuid.UUID] = mapped_column(default=uuid.uuid4)
    settings: Mapped[dict] = mapped_column(postgresql.JSONB, default=dict, server_default=sa.text("'{}'::jsonb"))
    tags: Mapped[list[str]] = mapped_column(postgresql.ARRAY(sa.Text), default=list)
    created: Mapped[datetime.datetime] = mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    orders: Mapped[list["Order"]] = relationship(back_populates="customer", cascade="all, delete-orphan")


class Product(Base):
    __tablename__ = "products"
    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    name: Mapped[str] = mapped_column(index=True)
    price: Mapped[decimal.Decimal] = mapped_column(sa.Numeric(10, 2))
    picture: Mapped[bytes | None]
    labels: Mapped[list["Label"]] = relationship(secondary=labels, back_populates="products")
    __table_args__ = (sa.CheckConstraint("price >= 0", name="price"),)


class Label(Base):
    __tablename__ = "labels"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    products: Mapped[list[Product]] = relationship(secondary=labels, back_populates="labels")


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(sa.ForeignKey("customers.id", ondelete="CASCADE"))
    state: Mapped[State] = mapped_column(sa.Enum(State, name="order_state"), default=State.NEW)
    placed: Mapped[datetime.datetime] = mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    customer: Mapped[Customer] = relationship(back_populates="orders")
    lines: Mapped[list["Line"]] = relationship(cascade="all, delete-orphan", order_by="Line.number")
    __table_args__ = (
        sa.Index("ix_orders_open", "customer_id", postgresql_where=sa.text("state <> 'SENT'")),
        sa.Index("ix_orders_placed", sa.text("placed DESC")))


class Line(Base):
    __tablename__ = "lines"
    order_id: Mapped[int] = mapped_column(sa.ForeignKey("orders.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(sa.SmallInteger, primary_key=True, autoincrement=False)
    product_id: Mapped[int] = mapped_column(
        sa.ForeignKey("products.id", deferrable=True, initially="DEFERRED"))
    quantity: Mapped[int] = mapped_column(server_default="1")
    product: Mapped[Product] = relationship()


sa.Index("ix_customers_lower_email", sa.func.lower(Customer.email), unique=True)
