"""SQLAlchemy 2 with Alembic: a schema by migrations, written by autogenerate, and an application on it.

usage: shop.py DRIVER, with DRIVER_URL set"""
import contextlib
import decimal
import io
import os
import sys
import tempfile
import threading

import alembic.command
import alembic.config
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session, joinedload, selectinload

from models import Base, Customer, Label, Line, Order, Product, State

DRIVER = sys.argv[1]
URL = os.environ["DRIVER_URL"].replace("postgresql://", f"postgresql+{DRIVER}://")
ENV = """
from alembic import context
import sqlalchemy as sa
from models import Base
engine = sa.create_engine(context.config.attributes["url"])
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=Base.metadata, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()
"""
TEMPLATE = '''"""${message}"""
from alembic import op
import sqlalchemy as sa
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade():
    ${upgrades if upgrades else "pass"}


def downgrade():
    ${downgrades if downgrades else "pass"}
'''


def sqlstate(error):
    return error.orig.sqlstate if DRIVER == "psycopg" else error.orig.pgcode


def migrations(directory):
    config = alembic.config.Config()
    config.set_main_option("script_location", directory)
    config.attributes["url"] = URL
    config.stdout = open(os.devnull, "w")
    os.makedirs(os.path.join(directory, "versions"))
    for name, text in (("env.py", ENV), ("script.py.mako", TEMPLATE)):
        with open(os.path.join(directory, name), "w") as file:
            file.write(text)
    return config


def differences(engine):
    with engine.connect() as connection:
        return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), Base.metadata)


def migrate(engine):
    with tempfile.TemporaryDirectory() as directory:
        config = migrations(directory)
        with contextlib.redirect_stdout(io.StringIO()):
            alembic.command.revision(config, "shop", autogenerate=True)
        alembic.command.upgrade(config, "head")
        assert differences(engine) == [], differences(engine)
        # What application developers write by hand next.
        with open(os.path.join(directory, "versions", "two.py"), "w") as file:
            file.write('''
from alembic import op
import sqlalchemy as sa
revision, down_revision, branch_labels, depends_on = "two", %r, None, None
def upgrade():
    op.add_column("products", sa.Column("stock", sa.Integer(), nullable=False, server_default="0"))
    op.alter_column("products", "name", type_=sa.String(200), existing_type=sa.String())
    op.create_check_constraint("stock", "products", "stock >= 0")
    op.create_index("ix_products_stock", "products", ["stock"], postgresql_where=sa.text("stock > 0"))
    op.execute("UPDATE products SET stock = 5")
    op.alter_column("products", "stock", server_default=None)
    op.rename_table("labels", "stickers")
    op.rename_table("stickers", "labels")
def downgrade():
    op.drop_index("ix_products_stock", "products")
    op.drop_constraint(op.f("ck_products_stock"), "products")
    op.alter_column("products", "name", type_=sa.String(), existing_type=sa.String(200))
    op.drop_column("products", "stock")
''' % current(engine))
        alembic.command.upgrade(config, "head")
        assert current(engine) == "two"
        alembic.command.downgrade(config, "-1")
        assert differences(engine) == [], differences(engine)


def current(engine):
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def fill(session):
    fresh, heavy = Label(name="fresh"), Label(name="heavy")
    products = [Product(name=f"product {n}", price=decimal.Decimal(n) / 4, labels=[fresh] if n % 2 else [heavy, fresh])
                for n in range(1, 41)]
    products[0].picture = bytes(range(256))
    session.add_all(products)
    for n in range(100):
        session.add(Customer(email=f"C{n}@Example.org", name=f"customer {n}", tags=["a", f"t{n % 3}"],
                             settings={"theme": "dark" if n % 2 else "light", "n": n}))
    session.flush()
    for n, customer in enumerate(session.scalars(sa.select(Customer).order_by(Customer.id).limit(10))):
        customer.orders.append(Order(lines=[Line(number=i, product=products[(n + i) % 40], quantity=i)
                                            for i in range(1, 4)]))
    session.commit()


def ask(session):
    orders = session.scalars(
        sa.select(Order).join(Order.customer).where(Customer.email.like("C1%")).order_by(Order.id)
        .options(selectinload(Order.lines).joinedload(Line.product), joinedload(Order.customer))).unique().all()
    assert [order.customer.email for order in orders] == ["C1@Example.org"]
    assert [line.product.name for line in orders[0].lines] == ["product 3", "product 4", "product 5"]
    total = sa.func.sum(Line.quantity * Product.price)
    rows = session.execute(
        sa.select(Customer.name, total.label("total")).select_from(Customer).join(Order).join(Line).join(Product)
        .group_by(Customer.id).having(total > 10).order_by(sa.desc("total"), Customer.name).limit(3)).all()
    assert [row.name for row in rows] == ["customer 9", "customer 8", "customer 7"], rows
    assert rows[0].total == decimal.Decimal("18.50"), rows[0].total
    assert session.scalar(sa.select(sa.func.count()).where(Customer.settings["theme"].astext == "dark")) == 50
    assert session.scalar(sa.select(sa.func.count()).where(Customer.settings.contains({"n": 7}))) == 1
    assert session.scalar(sa.select(sa.func.count()).where("t1" == sa.any_(Customer.tags))) == 33
    assert session.scalar(sa.select(Product.picture).where(Product.name == "product 1")) == bytes(range(256))
    window = sa.select(Order.id, sa.func.row_number().over(partition_by=Order.state, order_by=Order.placed)).subquery()
    assert session.scalar(sa.select(sa.func.count()).select_from(window)) == 10
    names = session.scalars(sa.select(Product.name).where(Product.labels.any(Label.name == "heavy"))
                            .order_by(Product.id).limit(2)).all()
    assert names == ["product 2", "product 4"], names
    first = session.scalars(sa.select(Customer).where(sa.func.lower(Customer.email) == "c5@example.org")).one()
    assert first.name == "customer 5"


def change(session):
    order = session.scalars(sa.select(Order).order_by(Order.id).limit(1).with_for_update()).one()
    order.state = State.PAID
    session.commit()
    assert session.scalars(sa.select(Order.state).where(Order.state > State.NEW)).all() == [State.PAID]
    insert = postgresql.insert(Label).values([{"name": "fresh"}, {"name": "new"}])
    insert = insert.on_conflict_do_update(index_elements=[Label.name], set_={"name": insert.excluded.name + "!"})
    assert sorted(session.scalars(insert.returning(Label.name))) == ["fresh!", "new"]
    session.commit()
    updated = session.execute(sa.update(Product).where(Product.price > 5).values(price=Product.price * 2))
    assert updated.rowcount == 20
    session.rollback()
    try:
        with session.begin_nested():
            session.add(Customer(email="C1@Example.org"))
    except sa.exc.IntegrityError as error:
        assert sqlstate(error) == "23505"
    else:
        raise AssertionError("the same address twice")
    try:
        with session.begin_nested():
            session.add(Product(name="x", price=decimal.Decimal(-1)))
    except sa.exc.IntegrityError as error:
        assert "ck_products_price" in str(error)
    else:
        raise AssertionError("a price below nothing")
    session.commit()
    # A deferred reference may be wrong until the commit.
    line = session.scalars(sa.select(Line).limit(1)).one()
    session.execute(sa.update(Line).where(Line.order_id == line.order_id, Line.number == line.number)
                    .values(product_id=999999))
    try:
        session.commit()
    except sa.exc.IntegrityError:
        session.rollback()
    else:
        raise AssertionError("a line without its product")
    customer = session.get(Customer, order.customer_id)
    session.delete(customer)
    session.commit()
    assert session.scalar(sa.select(sa.func.count(Line.number))) == 27


def reflect(engine):
    inspector = sa.inspect(engine)
    assert inspector.get_enums()[0]["labels"] == ["NEW", "PAID", "SENT"], inspector.get_enums()
    assert {index["name"] for index in inspector.get_indexes("orders")} == {"ix_orders_open", "ix_orders_placed"}
    (foreign,) = [key for key in inspector.get_foreign_keys("lines") if key["referred_table"] == "products"]
    assert foreign["options"] == {"deferrable": True, "initially": "DEFERRED"}, foreign
    assert inspector.get_check_constraints("products")[0]["name"] == "ck_products_price"
    metadata = sa.MetaData()
    metadata.reflect(engine)
    assert set(metadata.tables) == set(Base.metadata.tables) | {"alembic_version"}
    assert metadata.tables["customers"].c.settings.type.__class__ is postgresql.JSONB
    assert metadata.tables["products"].c.price.type.scale == 2


def count_together(engine):
    """Read, add one, write, in ten transactions at a time: those that lose try again, and none is lost."""
    def work():
        for _ in range(10):
            while True:
                try:
                    with Session(engine) as session, session.begin():
                        label = session.scalars(sa.select(Label).order_by(Label.id).limit(1)).one()
                        label.name = f"count {int(label.name.split()[1]) + 1}"
                    break
                except sa.exc.DBAPIError as error:
                    assert sqlstate(error) in ("40001", "40P01"), error
    engine = engine.execution_options(isolation_level="SERIALIZABLE")
    with Session(engine) as session, session.begin():
        session.scalars(sa.select(Label).order_by(Label.id).limit(1)).one().name = "count 0"
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Session(engine) as session:
        assert session.scalars(sa.select(Label.name).order_by(Label.id).limit(1)).one() == "count 40"


def main():
    engine = sa.create_engine(URL)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS alembic_version"))
    Base.metadata.drop_all(engine)
    migrate(engine)
    with Session(engine) as session:
        fill(session)
        ask(session)
        change(session)
    reflect(engine)
    count_together(engine)
    engine.dispose()
    print(f"sqlalchemy with {DRIVER}: migrations, reflection, queries, errors, contention")


main()
